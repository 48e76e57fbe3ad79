"""Sandboxed processors that lose requests, errors or processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.errors import SandboxedError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers import sandbox as sandbox_module
from conformance.reference_impl.workers.sandbox import SandboxProcess


@mutant("sandbox.drops-requests", kills=("sandbox.runs",))
def drops_requests(damage: Damage) -> None:
    """Progress and log rows of a sandboxed processor are not stored."""

    async def nothing(_job: Job, _message: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": 0}

    damage.replace(sandbox_module, "_done_for", nothing)


@mutant("sandbox.stale-data", kills=("sandbox.data",))
def stale_data(damage: Damage) -> None:
    """A sandboxed processor never sees what it has written, so its next update drops it."""
    first: dict[str, Mapping[str, Any]] = {}
    written: dict[str, set[str]] = {}

    def broken(done_for: Function) -> Function:
        async def done_as_if_unread(job: Job, message: Mapping[str, Any]) -> dict[str, Any]:
            if message["method"] == "updateData":
                known = first.setdefault(job.known_id, job.data)
                dropped = written.setdefault(job.known_id, set())
                (data,) = message["args"]
                message = {**message, "args": [{name: data[name] for name in data if name not in dropped}]}
                dropped.update(data.keys() - known.keys())
            answer: dict[str, Any] = await done_for(job, message)
            return answer

        return done_as_if_unread

    damage.around(sandbox_module, "_done_for", broken)


@mutant("sandbox.every-error-alike", kills=("sandbox.errors",))
def every_error_alike(damage: Damage) -> None:
    """Errors of a sandboxed processor lose their kind, so that an unrecoverable one is retried."""

    def broken(result_of: Function) -> Function:
        def result_of_any(outcome: Mapping[str, Any]) -> Any:
            failed = outcome.get("failed")
            return result_of({"failed": {**failed, "kind": None}} if failed else outcome)

        return result_of_any

    damage.around(sandbox_module, "result_of", broken)


@mutant("sandbox.no-reason", kills=("sandbox.start",))
def no_reason(damage: Damage) -> None:
    """A job that fails in its process fails without a reason."""

    def broken(result_of: Function) -> Function:
        def result_without_reason(outcome: Mapping[str, Any]) -> Any:
            failed = outcome.get("failed")
            return result_of({"failed": {**failed, "message": ""}} if failed else outcome)

        return result_without_reason

    damage.around(sandbox_module, "result_of", broken)


@mutant("sandbox.unnoticed-end", kills=("sandbox.exit",))
def unnoticed_end(damage: Damage) -> None:
    """A worker waits without end for a process that ends before its first message."""
    heard: set[SandboxProcess] = set()

    def broken(receive: Function) -> Function:
        async def receive_or_wait(process: SandboxProcess) -> dict[str, Any]:
            try:
                message: dict[str, Any] = await receive(process)
            except SandboxedError:
                if process not in heard:
                    damage.witness.note()
                    await asyncio.Event().wait()
                raise
            heard.add(process)
            return message

        return receive_or_wait

    damage.around(SandboxProcess, "_receive", broken)
