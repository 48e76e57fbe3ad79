"""The official Python client (`bullmq` on PyPI) behind the driver protocol.

Runs in an environment of its own that has the client and nothing of the kit: `serve.py` is loaded by its path. Every
operation is one call of the client; what it has no call for is not declared. The driver neither mends nor hides what
the client does: options go through as they come, and values come back as the client's user would see them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import bullmq
from errors import told_to_the_kit
from handles import Handle, Handles
from job_ops import JOB_OPS, WORKER_OPS, log
from kit import DriverServer, OpError, deadline_ms
from opening import open_handle
from processors import resolve
from queue_ops import FLOW_OPS, QUEUE_OPS

Json = dict[str, Any]
Handler = Callable[[str | None, Json], Coroutine[Any, Any, Json | None]]

TARGETS = "6.4.0"
"""The BullMQ whose Lua scripts, byte for byte, are in the wheel of bullmq 3.4.4."""
CAPABILITIES = ["manual-worker", "managed-worker", "cluster"]
ANSWER_BY = 0.9
"""The part of a call's deadline after which it is answered as undecided."""


class Driver:
    """The open handles, and the operations on them."""

    def __init__(self) -> None:
        self.handles = Handles()
        self.server = DriverServer(
            client={"name": "bullmq", "language": "python", "version": bullmq.__version__, "targets": TARGETS},
            capabilities=CAPABILITIES,
            ops={name: _guarded(name, handler) for name, handler in self._operations().items()},
        )

    def _operations(self) -> dict[str, Handler]:
        return {
            "open": self._open,
            "close": self._close,
            "reset": self._reset,
            "resolve": self._resolve,
            "job.log": self._on_handle(log, "queue", "worker"),
            **{name: self._on_object(run, "queue") for name, run in QUEUE_OPS.items()},
            **{name: self._on_object(run, "flow") for name, run in FLOW_OPS.items()},
            **{name: self._on_job(run) for name, run in JOB_OPS.items()},
            **{name: self._on_handle(run, "worker") for name, run in WORKER_OPS.items()},
        }

    async def _open(self, name: str | None, args: Json) -> None:
        free = self.handles.check_free(name)
        handle = await open_handle(free, args, lambda event, values: self.server.emit(free, event, values))
        self.handles.add(handle)

    async def _close(self, name: str | None, args: Json) -> None:
        await self.handles.close(name, force=args.get("force", False))

    async def _reset(self, _name: str | None, _args: Json) -> None:
        await self.handles.abandon_all()

    async def _resolve(self, name: str | None, args: Json) -> None:
        resolve(self.handles.named(name, "worker"), args)

    def _on_handle(self, run: Callable[[Handle, Json], Awaitable[Json | None]], *roles: str) -> Handler:
        async def call(name: str | None, args: Json) -> Json | None:
            return await run(self.handles.named(name, *roles), args)

        return call

    def _on_object(self, run: Callable[[Any, Json], Awaitable[Json | None]], role: str) -> Handler:
        return self._on_handle(lambda handle, args: run(handle.object, args), role)

    def _on_job(self, run: Callable[[Any, Json], Awaitable[Json | None]]) -> Handler:
        async def call(handle: Handle, args: Json) -> Json | None:
            return await run(await handle.find_job(args["job"]), args)

        return self._on_handle(call, "queue", "worker")


def _guarded(op: str, handler: Handler) -> Handler:
    async def call(name: str | None, args: Json) -> Json | None:
        with told_to_the_kit(op):
            return await _in_time(op, handler(name, args))

    return call


async def _in_time(op: str, work: Coroutine[Any, Any, Json | None]) -> Json | None:
    """Wait for the client, but no longer than the kit does: a driver that is silent then would be killed.

    What takes longer goes on unattended, as it would for a user who stops waiting. Raises OpError.
    """
    limit_ms = ANSWER_BY * deadline_ms()
    task = asyncio.ensure_future(work)
    done, _pending = await asyncio.wait({task}, timeout=limit_ms / 1000)
    if not done:
        task.add_done_callback(_log_late_end)
        raise OpError("timeout", f"{op} did not end within {limit_ms:.0f} ms: no answer", definite=False, status="info")
    return task.result()


def _log_late_end(task: asyncio.Task[Json | None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        print(f"ended after its deadline with {task.exception()!r}", file=sys.stderr)


if __name__ == "__main__":
    Driver().server.run()
