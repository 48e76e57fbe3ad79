"""A process that keeps locks for a worker, and does not notice its death. It reads one order a line.

`python -m chaos.mutants.lock_child HOST PORT MS`: `hold KEY TOKEN` renews a lock for MS milliseconds from now on, until
`release KEY TOKEN`. A lock that has another token is not touched.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from redis import Redis
from redis.exceptions import RedisError

EXTEND = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])"


def main(host: str, port: str, lock_ms: str) -> None:
    """Renew until killed."""
    held: set[tuple[str, str]] = set()

    def follow_orders() -> None:
        for order in sys.stdin:
            what, key, token = order.split()
            (held.add if what == "hold" else held.discard)((key, token))

    threading.Thread(target=follow_orders, daemon=True).start()
    redis = Redis(host=host, port=int(port))
    while True:
        for key, token in held.copy():
            with suppress(RedisError):
                redis.eval(EXTEND, 1, key, token, lock_ms)
        threading.Event().wait(int(lock_ms) / 4000)


if __name__ == "__main__":
    main(*sys.argv[1:])
