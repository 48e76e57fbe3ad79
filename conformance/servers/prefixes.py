"""Key prefixes that the kit uses on a Redis of the user, written down before they are used.

So a run that is interrupted at any moment, in any of its processes, leaves no key. The list is a file, because
processes that the kit starts (of xdist, of Spark) make prefixes too; they find it through their environment.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from conformance.servers.connection import Client

OWN = b"bullmq-conformance"
"""What keys begin with that belong to no queue."""

VARIABLE = "BULLMQ_CONFORMANCE_PREFIXES"
"""Names the file, for this process and for those that it starts."""
SCAN_COUNT = 1000
LAST_WRITES_S = 10.0
"""How long drivers and workers that are being ended may still write."""
LOOK_EVERY_S = 0.3
LOOKS_IN_VAIN = 8
"""After so many it is over: a scenario that has noted its prefix may still wait for a driver to start."""
_PREFIX = re.compile(rb"bc[0-9a-f]{8}")


def note(prefix: str) -> None:
    """Write a prefix down before it is used; nothing where nobody will look.

    Raises KeyboardInterrupt where the list is gone: this process was left behind by one that was interrupted, and what
    it wrote now would stay.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        raise KeyboardInterrupt from None
    with os.fdopen(file, "a", encoding="ascii") as noted:
        noted.write(f"{prefix}\n")


@contextmanager
def swept(connect: Callable[[], Client], announce: Callable[[str], None]) -> Iterator[None]:
    """Remove every key under a prefix that was noted in this block, where the block is interrupted.

    A block that ends otherwise has cleaned up after itself. `announce` is told where Redis does not let the kit do it.
    """
    handle, path = tempfile.mkstemp(prefix="bullmq-conformance-prefixes-")
    os.close(handle)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = path
    try:
        yield
    except KeyboardInterrupt:
        # Under another name first: from then on no process that is left behind begins anything new.
        taken = Path(path).replace(f"{path}-taken")
        noted = set(taken.read_text("ascii").split())
        taken.unlink()
        _sweep(connect, noted, announce)
        raise
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        Path(path).unlink(missing_ok=True)


def _sweep(connect: Callable[[], Client], prefixes: set[str], announce: Callable[[str], None]) -> None:
    try:
        with connect() as client:
            _until_nobody_writes(lambda: remove_all(client, prefixes))
    except (redis.RedisError, OSError) as error:
        announce(f"keys may be left in Redis under {', '.join(sorted(prefixes)) or 'no prefix'}: {error}")


def _until_nobody_writes(remove: Callable[[], int]) -> None:
    """Remove until nothing has come for a while: processes that are being ended may write once more."""
    ends, nothing_left = time.monotonic() + LAST_WRITES_S, 0
    while nothing_left < LOOKS_IN_VAIN and time.monotonic() < ends:
        nothing_left = 0 if remove() else nothing_left + 1
        time.sleep(LOOK_EVERY_S)


def remove_all(client: Client, prefixes: set[str]) -> int:
    """Unlink all keys under these prefixes, and those of queues that bear one in their name. Returns how many.

    One SCAN for all of them: a run has thousands. Raises redis errors.
    """
    wanted = {prefix.strip("{}").encode() for prefix in prefixes}
    if not wanted:
        return 0
    found = (key for key in client.scan_iter(match="*bc*", count=SCAN_COUNT) if _bears_one_of(key, wanted))
    return sum(client.unlink(key) for key in found)


def _bears_one_of(key: bytes, prefixes: set[bytes]) -> bool:
    """Whether the key is `PREFIX:...`, with or without braces, or of a queue that is called `...-PREFIX`.

    Or the kit's own about such a prefix, as the progress of a load: `bullmq-conformance:load:PREFIX:...`.
    """
    first, _, rest = key.partition(b":")
    if first.strip(b"{}") in prefixes:
        return True
    if first == OWN:
        return any(part.strip(b"{}") in prefixes for part in rest.split(b":"))
    queue = rest.partition(b":")[0].strip(b"{}")
    return any(queue.endswith(b"-" + found) and found in prefixes for found in _PREFIX.findall(queue))
