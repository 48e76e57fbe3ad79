"""Puts the operations together and serves them on stdin and stdout."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Final

from conformance.driver.serve import DriverServer
from conformance.problems import Problem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.reference_impl.clock import AdjustableClock
from conformance.reference_impl.driver.handles import ReferenceHandles
from conformance.reference_impl.driver.job_ops import job_handlers, worker_handlers
from conformance.reference_impl.driver.library import is_complete, library_handlers
from conformance.reference_impl.driver.queue_ops import queue_handlers
from conformance.reference_impl.driver.views import Handler, Json, translating
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts

CLIENT: Final = {
    "name": "bullmq-reference",
    "language": "python",
    "version": "0.1.0",
    "targets": BULLMQ_VERSION,
    "packages": {"hiredis": version("hiredis")},
}
CAPABILITIES: Final = (
    *("clock", "manual-worker", "managed-worker", "cluster", "raw-data"),
    *("sandbox", "url", "client", "fail-fast", "queue-events", "unheard"),
)

DEEPEST_JSON: Final = 10_000
"""Recursion limit for parsing nested job data; Python's default is 1000."""


def make_server(scripts: Callable[[], ScriptTexts]) -> DriverServer:
    """Make a driver of the reference client; `scripts` is called once for the Lua scripts."""
    clock = AdjustableClock()
    server_of: list[DriverServer] = []

    def emit(handle: str, name: str, args: Json | None = None) -> None:
        server_of[0].emit(handle, name, args)

    handles = ReferenceHandles(emit, clock, cache(scripts))
    operations: dict[str, Handler] = {
        "open": handles.open,
        "close": handles.close,
        "reset": handles.reset,
        **queue_handlers(handles),
        **job_handlers(handles),
        **worker_handlers(handles),
        **(library_handlers(handles) if is_complete() else {}),
    }
    server = DriverServer(
        client=CLIENT,
        capabilities=(*CAPABILITIES, *(["library"] if is_complete() else [])),
        ops={name: translating(handler) for name, handler in operations.items()},
        on_clock=clock.stop_at,
    )
    server_of.append(server)
    return server


def main() -> int:
    """Serve until stdin ends. A missing package or Node is reported on stderr: exit code 3."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    sys.setrecursionlimit(DEEPEST_JSON)
    try:
        # Before the handshake: the download may take longer than the first call's deadline.
        scripts = official_scripts()
    except Problem as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    use_fast_loop()
    make_server(lambda: scripts).run()
    return 0


def use_fast_loop() -> bool:
    """Use uvloop for event loops if it is installed (extra `speed`); returns whether it is."""
    if importlib.util.find_spec("uvloop") is None:
        return False
    asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    return True
