"""The words of steps: those of the handles of scenarios (`participants/handles.py`), which make steps here. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.steps.shapes import HELD, CallStep


@dataclass(frozen=True)
class StepWords:
    """An object of a client."""

    handle: str

    def call(self, op: Op[Any]) -> CallStep:
        """Any operation of the protocol on this handle."""
        return CallStep(self.handle, op)


class QueueWords(StepWords):
    """A Queue, and the jobs in it."""

    def add(self, name: str = "job", data: Any = None, **opts: Any) -> CallStep:
        """Queue.add; `opts` are BullMQ's JobsOptions."""
        return self.call(queue.Add(name=name, data_raw=_json_text(data), opts=opts))

    def add_bulk(self, *jobs: tuple[str, Any, dict[str, Any]]) -> CallStep:
        """Queue.addBulk of (name, data, opts)."""
        new = [queue.NewJob(name=name, data_raw=_json_text(data), opts=opts) for name, data, opts in jobs]
        return self.call(queue.AddBulk(jobs=new))

    def pause(self) -> CallStep:
        """Queue.pause."""
        return self.call(queue.Pause())

    def resume(self) -> CallStep:
        """Queue.resume."""
        return self.call(queue.Resume())

    def promote(self, job_id: str) -> CallStep:
        """Job.promote."""
        return self.call(job.Promote(job=job_id))

    def retry(self, job_id: str) -> CallStep:
        """Job.retry of a failed job."""
        return self.call(job.Retry(job=job_id))

    def schedule(self, scheduler: str, repeat: dict[str, Any], *, name: str | None = None, **opts: Any) -> CallStep:
        """Queue.upsertJobScheduler; `opts` are those of its jobs."""
        return self.call(flow.UpsertJobScheduler(id=scheduler, repeat=repeat, name=name, opts=opts or None))

    def unschedule(self, scheduler: str) -> CallStep:
        """Queue.removeJobScheduler."""
        return self.call(flow.RemoveJobScheduler(id=scheduler))


class WorkerWords(StepWords):
    """A manual Worker with a lock token of its own."""

    @property
    def held(self) -> str:
        """The placeholder of the id of the job that it holds; a call about it is not made if there is none."""
        return HELD + self.handle

    @property
    def token(self) -> str:
        """Its lock token."""
        return f"{self.handle}-token"

    def claim(self) -> CallStep:
        """Worker.getNextJob."""
        return self.call(worker.GetNextJob(token=self.token))

    def complete(self, job_id: str = "", value: Any = None, *, fetch_next: bool = False) -> CallStep:
        """Job.moveToCompleted, of the job that it holds if none is named."""
        value_raw = msgspec.json.encode(value).decode()
        named = {"job": job_id or self.held, "token": self.token}
        return self.call(worker.MoveToCompleted(**named, value_raw=value_raw, fetch_next=fetch_next))

    def fail(
        self, job_id: str = "", message: str = "boom", *, unrecoverable: bool = False, fetch_next: bool = False
    ) -> CallStep:
        """Job.moveToFailed, of the job that it holds if none is named."""
        named = {"job": job_id or self.held, "token": self.token, "message": message}
        return self.call(worker.MoveToFailed(**named, unrecoverable=unrecoverable, fetch_next=fetch_next))

    def wait_for_children(self) -> CallStep:
        """Job.moveToWaitingChildren of the job that it holds."""
        return self.call(worker.MoveToWaitingChildren(job=self.held, token=self.token))

    def check_stalled(self) -> CallStep:
        """One stalled check, now."""
        return self.call(worker.CheckStalled())


class FlowWords(StepWords):
    """A FlowProducer."""

    def add(self, tree: dict[str, Any]) -> CallStep:
        """FlowProducer.add of {name, queue, data_raw?, opts?, children?}."""
        return self.call(flow.AddFlow(flow=msgspec.convert(tree, flow.FlowJob)))


def _json_text(data: Any) -> str:
    return msgspec.json.encode({} if data is None else data).decode()
