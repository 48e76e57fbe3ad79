"""Everything that a verb needs before it can begin: Node, bullmq, Redis, drivers and taps."""
