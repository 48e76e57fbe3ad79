"""The list of key prefixes that a run uses on a Redis of the user, each recorded before its first use.

So a run that is interrupted at any moment, in any of its processes, can remove all its keys. The list is a file,
because child processes (xdist, Spark) also create prefixes; an environment variable names it.
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
"""The start of keys that do not belong to a queue."""

VARIABLE = "BULLMQ_CONFORMANCE_PREFIXES"
"""Environment variable with the path of the list, for this process and its children."""
SCAN_COUNT = 1000
LAST_WRITES_S = 10.0
"""Drivers and workers that are being ended may still write for this time."""
SCAN_EVERY_S = 0.3
EMPTY_SCANS = 8
"""The cleanup ends after this number of scans without keys: a slow scenario may write its first keys late."""
_PREFIX = re.compile(rb"bc[0-9a-f]{8}")


def note(prefix: str) -> None:
    """Record a prefix before its first use. Does nothing without a list.

    Raises KeyboardInterrupt if the list is gone: the parent of this process was interrupted, and nothing would remove
    the new keys.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        # Without O_CREAT: a renamed list must not come back. O_APPEND keeps lines of several processes whole.
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        raise KeyboardInterrupt from None
    with os.fdopen(file, "a", encoding="ascii") as noted:
        noted.write(f"{prefix}\n")


@contextmanager
def swept(connect: Callable[[], Client], announce: Callable[[str], None]) -> Iterator[None]:
    """If the block is interrupted, remove all keys under the prefixes that were recorded in it.

    A block that ends normally cleans up itself. `announce` gets a line if the cleanup fails.
    """
    handle, path = tempfile.mkstemp(prefix="bullmq-conformance-prefixes-")
    os.close(handle)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = path
    try:
        yield
    # Other exceptions end the run in the normal way, which removes its keys itself.
    except KeyboardInterrupt:
        # Rename the list first: from now on, remaining processes cannot start with a new prefix.
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
            _until_writes_end(lambda: remove_all(client, prefixes))
    except (redis.RedisError, OSError) as error:
        # Only announced: the interruption itself must still reach the caller.
        announce(f"keys may be left in Redis under {', '.join(sorted(prefixes)) or 'no prefix'}: {error}")


def _until_writes_end(remove: Callable[[], int]) -> None:
    """Remove keys until no new ones appear for a while: processes that are being ended may still write."""
    ends, empty_scans = time.monotonic() + LAST_WRITES_S, 0
    while empty_scans < EMPTY_SCANS and time.monotonic() < ends:
        # Counted from the last key found, because one empty scan may fall between two late writes.
        empty_scans = 0 if remove() else empty_scans + 1
        time.sleep(SCAN_EVERY_S)


def remove_all(client: Client, prefixes: set[str]) -> int:
    """Unlink all keys under these prefixes, and those of queues with one in their name. Returns their number.

    Raises redis errors.
    """
    wanted = {prefix.strip("{}").encode() for prefix in prefixes}
    if not wanted:
        return 0
    # One SCAN for all prefixes: a run has thousands of them.
    keys = (key for key in client.scan_iter(match="*bc*", count=SCAN_COUNT) if _has_prefix(key, wanted))
    return sum(client.unlink(key) for key in keys)


def _has_prefix(key: bytes, prefixes: set[bytes]) -> bool:
    """Whether a key is `PREFIX:...` (with or without braces) or of a queue named `...-PREFIX`, for any of the prefixes.

    Or a key of the kit about such a prefix, such as the progress of a load: `bullmq-conformance:load:PREFIX:...`.
    """
    first, _, rest = key.partition(b":")
    if first.strip(b"{}") in prefixes:
        return True
    if first == OWN:
        return any(part.strip(b"{}") in prefixes for part in rest.split(b":"))
    queue = rest.partition(b":")[0].strip(b"{}")
    return any(queue.endswith(b"-" + prefix) and prefix in prefixes for prefix in _PREFIX.findall(queue))
