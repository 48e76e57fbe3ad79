"""The oracle's own driver without its capability `clock`: most clients cannot set their time.

Each side then uses its own clock. Findings about such a client must be as accurate as about one with a clock: this
client is Node itself, so a run must find nothing (`make full-node-without-clock`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO

from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

BLOCK_BYTES = 65_536


def without_clock(first_line: bytes) -> bytes:
    """A driver's first line, less `clock` among its capabilities."""
    ready = json.loads(first_line)
    ready["capabilities"] = [name for name in ready["capabilities"] if name != "clock"]
    return json.dumps(ready).encode() + b"\n"


def pass_on(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy what comes, as soon as it comes, until the source ends."""
    while block := os.read(source.fileno(), BLOCK_BYTES):
        target.write(block)
        target.flush()


def main() -> int:
    """Serve until stdin ends; Node's exit code."""
    node = find_node()
    package = ensure_package(node, announce=lambda line: print(line, file=sys.stderr))
    command, variables = driver_command(node, package)
    # Unbuffered: what is read as a line must not take a part of the next one along.
    driver = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, bufsize=0)
    assert driver.stdout is not None
    sys.stdout.buffer.write(without_clock(driver.stdout.readline()))
    sys.stdout.buffer.flush()
    pass_on(driver.stdout, sys.stdout.buffer)
    return driver.wait()


if __name__ == "__main__":
    sys.exit(main())
