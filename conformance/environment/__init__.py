"""Everything that a verb needs before it starts: Node, bullmq, Redis, drivers and taps."""
