"""A producer: carries out its workload call by call, and records what it was told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from chaos.members import Member
from chaos.recorder import Recorder
from chaos.workload import EVENTS_KEPT, NARROW, NARROW_CONCURRENCY, QUEUES, PlannedCall
from conformance.checkers.histories.lines import Fail, Info, Invoke, Ok
from conformance.driver.connection import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.driver.ops.base import Ids, JobRef
from conformance.driver.ops.flow import FlowNode
from conformance.driver.ops.queue import SetGlobalConcurrency

RETRY_S = 0.05


class Producer:
    """Calls one after the other, `pause_s` apart. When its process has died it waits until somebody starts it again."""

    def __init__(
        self, member: Member, calls: Iterator[PlannedCall], recorder: Recorder, prefix: str, pause_s: float
    ) -> None:
        self.member = member
        self._calls = calls
        self._recorder = recorder
        self._prefix = prefix
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=member.name)
        member.furnish = self.furnish

    def furnish(self, member: Member) -> None:
        """Open a queue handle for each queue, and a flow handle."""
        for queue in QUEUES:
            options = {"streams": {"events": {"maxLen": EVENTS_KEPT}}}
            member.open(f"queue-{queue}", "queue", queue, self._prefix, options=options)
        member.open("flow", "flow", "", self._prefix)

    def set_limits(self) -> None:
        """Set the global concurrency of the narrow queue."""
        self.member.call(SetGlobalConcurrency(concurrency=NARROW_CONCURRENCY), f"queue-{NARROW}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further call."""
        self._ended.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the call that is on its way; whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        for call in self._calls:
            if self._ended.is_set():
                return
            if self._wait_for_life():
                self._carry_out(call)
            self._ended.wait(self._pause_s)

    def _wait_for_life(self) -> bool:
        while not self.member.alive:
            if self._ended.wait(RETRY_S):
                return False
        return True

    def _carry_out(self, call: PlannedCall) -> None:
        number, who = self._recorder.number(), self.member.name
        name = type(call.op).op
        handle = "flow" if call.role == "flow" else f"queue-{call.queue}"
        args = {"queue": call.queue}
        now = self._recorder.now_ms
        self._recorder.put(Invoke(at_ms=now(), process=who, call=number, op=name, jobs=list(call.jobs), args=args))
        try:
            answer = self.member.call(call.op, handle)
        except OperationFailed as error:
            self._recorder.put(Fail(at_ms=now(), process=who, call=number, error=str(error)))
        except (OperationIndeterminate, DriverBroken) as error:
            self._recorder.put(Info(at_ms=now(), process=who, call=number, error=str(error).splitlines()[0]))
        else:
            ids = dict(zip((job.name for job in call.jobs), ids_in(answer), strict=False))
            self._recorder.put(Ok(at_ms=now(), process=who, call=number, ids=ids))


def ids_in(answer: Any) -> list[str]:
    """The ids in an answer, in the order of the planned jobs: a flow's root before its children."""
    if isinstance(answer, JobRef):
        return [answer.id]
    if isinstance(answer, Ids):
        return answer.ids
    if isinstance(answer, FlowNode):
        return [answer.id, *(each for child in answer.children for each in ids_in(child))]
    return []
