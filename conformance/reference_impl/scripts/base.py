"""What all groups of script calls share: the queue they belong to, and the check of negative results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.resp import Argument
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.scripts.runner import ScriptCall, ScriptRunner


class ScriptOwner(Protocol):
    """The queue or worker on whose behalf scripts run."""

    @property
    def keys(self) -> QueueKeys:
        """Key names of the queue."""
        ...

    @property
    def opts(self) -> Mapping[str, Any]:
        """QueueOptions or WorkerOptions."""
        ...

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the owner fetches no more jobs."""
        ...


class ScriptCalls:
    """Base of the groups of script calls."""

    def __init__(self, runner: ScriptRunner, owner: ScriptOwner) -> None:
        self._runner = runner
        self._owner = owner

    @property
    def _keys(self) -> QueueKeys:
        return self._owner.keys

    async def _run(self, name: str, keys: Sequence[str], *arguments: Argument) -> Any:
        return await self._runner.run(ScriptCall(name, keys, arguments))

    async def _run_on_job(
        self, name: str, job_id: str, keys: Sequence[str], *arguments: Argument, state: str | None = None
    ) -> Any:
        """Run a script about one job. Raises ScriptError for a negative result; `state` is named in its text."""
        reply = await self._run(name, keys, *arguments)
        if is_refusal(reply):
            raise script_error(reply, command=name, job=job_id, state=state)
        return reply


def is_refusal(reply: Any) -> bool:
    """Whether a script's reply is an error code."""
    return isinstance(reply, int) and reply < 0
