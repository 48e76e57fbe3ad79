"""`python -m tests.gate.hasty_node [--without OPERATION]`: Node behind a `close` that does not wait.

The driver answers `close` of a worker at once and forgets the handle, as drivers of some young clients do. Node itself
closes in the background, so everything else is correct: any finding that is not about `close` is false.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

from conformance.driver.ops import REGISTRY
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

BY_HAND = frozenset(
    {"worker.getNextJob", "worker.checkStalled", "worker.extendLock", "worker.extendLocks"}
    | {name for name in REGISTRY if name.startswith("worker.moveTo")}
)
"""The operations of a manual worker, which this client does not have."""

UNASKED = 1_000_000_000
"""Ids of calls above this are the driver's own; the kit does not wait for their answers."""


class HastyDriver:
    """Passes lines between the kit and Node, except for those about closed workers."""

    def __init__(self, without: Iterable[str], to_node: IO[bytes], to_kit: IO[bytes]) -> None:
        self._lacks = BY_HAND | {*without}
        self._to_node, self._to_kit = to_node, to_kit
        self._writing = threading.Lock()
        self._workers: set[str] = set()
        self._gone: set[str] = set()

    def from_kit(self, line: bytes) -> None:
        """Answer a call about a closed worker; pass all others to Node."""
        call = json.loads(line)
        op, handle = call.get("op"), call.get("handle", "")
        if op == "open" and call["args"]["role"] == "worker":
            self._workers.add(handle)
        if op == "reset":
            self._workers, self._gone = set(), set()
        if handle in self._gone:
            error = {"code": "invalid-argument", "definite": True, "message": f"there is no handle {handle}"}
            self._answer(call, status="fail", error=error)
            return
        if op in self._lacks:
            self._answer(call, status="unsupported", reason="this client has no such method")
            return
        if op == "close" and handle in self._workers:
            self._gone.add(handle)
            call = {**call, "id": call["id"] + UNASKED}
            self._answer({**call, "id": call["id"] - UNASKED}, status="ok", value={})
        self._to_node.write(json.dumps(call).encode() + b"\n")
        self._to_node.flush()

    def from_node(self, line: bytes) -> None:
        """Pass a line on, with what this client declares, and without answers that the kit does not wait for."""
        message = json.loads(line)
        if message.get("id", 0) > UNASKED:
            return
        if message["type"] == "ready":
            message["ops"] = [op for op in message["ops"] if op not in self._lacks]
            message["capabilities"] = [name for name in message["capabilities"] if name != "manual-worker"]
        self._send(message)

    def _answer(self, call: dict[str, Any], **result: Any) -> None:
        self._send({"type": "result", "id": call["id"], **result})

    def _send(self, message: dict[str, Any]) -> None:
        # Two threads write: one with Node's lines, one with the driver's own answers.
        with self._writing:
            self._to_kit.write(json.dumps(message).encode() + b"\n")
            self._to_kit.flush()


def pump(source: IO[bytes], receive: Callable[[bytes], None]) -> None:
    """Pass on every line until the source ends."""
    for line in source:
        receive(line)


def main() -> int:
    """Serve until stdin ends; Node's exit code."""
    options = argparse.ArgumentParser(prog="hasty_node", description=__doc__)
    options.add_argument("--without", action="append", default=[], help="another operation that the client lacks")
    without = options.parse_args().without
    node = find_node()
    package = ensure_package(node, announce=lambda text: print(text, file=sys.stderr))
    command, variables = driver_command(node, package)
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    driver = HastyDriver(without, process.stdin, sys.stdout.buffer)
    from_node = threading.Thread(target=pump, args=(process.stdout, driver.from_node), daemon=True)
    from_node.start()
    pump(sys.stdin.buffer, driver.from_kit)
    process.stdin.close()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
