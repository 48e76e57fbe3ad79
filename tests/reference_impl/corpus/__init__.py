"""The corpus: rows of steps that real BullMQ 5.62.0 and the reference client both take, with clocks that stand still.

Each row runs on both under prefixes of equal length on one private Redis, each client behind a tap that keeps its
commands. Afterwards three things must be the same (`comparing.py`): what was answered, what was sent, and
what is in Redis. A row is data (`steps.py`); the modules with `CASES` hold the rows of one area; `all_cases.py` lists
them.

What may differ, and why:

- the prefix, and uuids (job ids of flows, first halves of lock tokens): numbered, so that equal ones stay equal;
- stack traces: written by the language; their number is compared;
- ids of stream entries, and times to live: the server's clock; a time to live must lie in its band;
- the order of the members of a Redis set: it follows from the members, which hold the prefix;
- EVAL or EVALSHA: a server that does not know a script gets its text, and a text must be that of the pinned package;
- what makes a connection ready (`traffic.CHATTER`), and how often a reader of events goes on reading;
- a read with which the oracle's driver waits for its queue to be ready.

Nothing else: not the bytes of `opts` or of MessagePack arguments, not `meta.version`, not the times of jobs.
"""
