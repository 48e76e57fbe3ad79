"""The corpus: rows of steps that real BullMQ 5.62.0 and the reference client both run, with fixed clocks.

Each row runs on both under prefixes of equal length on one private Redis, each client behind a tap that records its
commands. Afterwards `comparison.py` compares the answers, the commands, and the state of Redis, which must be equal. A
row is data (`steps.py`); the modules with `CASES` hold the rows of one area; `all_cases.py` lists them.

Allowed differences, with reasons:

- the prefix, and uuids (job ids of flows, first halves of lock tokens): numbered, so that equal ones stay equal;
- stack traces: written by the language; their number is compared;
- ids of stream entries, and times to live: the server's clock; a time to live must lie in its band;
- the order of the members of a Redis set: it follows from the members, which hold the prefix;
- EVAL or EVALSHA: a server that does not know a script gets its text, and a text must be that of the pinned package;
- commands that make a connection ready (`traffic.CHATTER`), and the number of reads of an event reader;
- a read with which the oracle's driver waits for its queue to be ready.

Nothing else may differ: not the bytes of `opts` or of MessagePack arguments, not `meta.version`, not the times of jobs.
"""
