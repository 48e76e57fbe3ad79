"""Queue, worker, events, flow and relay objects of a participant, with the operations that scenarios use.

Each method is one operation of the driver protocol, documented in `conformance/driver/ops`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from conformance.driver.errors import DriverHung, EventTimeout, OperationIndeterminate, OperationUnsupported
from conformance.driver.messages import DriverEvent
from conformance.driver.ops import Op, flow, job, library, lifecycle, queue, relay, worker
from conformance.driver.ops.base import JobView
from conformance.driver.ops.lifecycle import JobEvent, MessageEvent, QueueEvent
from conformance.findings import Timing
from conformance.participants.caller import Caller, json_text
from conformance.participants.expect import Mismatch
from conformance.participants.redis_view import RedisView

Answer = TypeVar("Answer")

IN_STREAM = frozenset({"active", "completed", "failed", "stalled"})
"""Events of workers that can also be seen in Redis."""

CALL_DEADLINE_MS = 8000
CHARACTERS_PER_MS = 250
"""The slowest acceptable speed for large data: 10 MB in 40 s."""


class ParticipantHandle:
    """An object of the client."""

    def __init__(self, caller: Caller, queue_name: str, handle: str) -> None:
        self.caller = caller
        self.queue_name = queue_name
        self.handle = handle

    @property
    def redis(self) -> RedisView:
        """The keys of this handle's queue."""
        return self.caller.redis(self.queue_name)

    def call(self, op: Op[Answer], *, deadline_ms: int = CALL_DEADLINE_MS) -> Answer:
        """Any operation of the protocol on this handle."""
        return self.caller.call(op, handle=self.handle, deadline_ms=deadline_ms)

    def close(self, *, force: bool = False, within_ms: int = 35_000, at_most_ms: int | None = None) -> None:
        """Close as the client's user would.

        Raises Mismatch if it does not end within `within_ms`, in any scenario; or if it took more than `at_most_ms`.
        This second limit is checked afterwards, because a call that exceeds its own limit ends the driver.
        """
        started_s = time.monotonic()
        try:
            self.call(lifecycle.Close(force=force), deadline_ms=within_ms)
        # A close that hangs is a finding about the client, not a broken driver.
        except DriverHung as hung:
            raise _never_closed(within_ms, hung) from hung
        except OperationIndeterminate as unknown:
            # Only a timeout says that close did not return; another error is the driver's own answer.
            if unknown.error.code != "timeout":
                raise
            raise _never_closed(within_ms, unknown) from unknown
        took_ms = round((time.monotonic() - started_s) * 1000)
        if at_most_ms is not None and took_ms > at_most_ms:
            raise _never_closed(at_most_ms, f"after {took_ms} ms")

    def metrics(self) -> str:
        """The metrics of an object opened with `library`, in the text format of Prometheus."""
        return self.call(library.ScrapeMetrics()).text

    def log_lines(self, *messages: str) -> list[library.LogLine]:
        """Return the lines that an object opened with `library` has logged; `messages`: only those with such a text."""
        return [line for line in self.call(library.ReadLogs()).lines if not messages or line.message in messages]

    def uncaught(self) -> list[str]:
        """The texts of the unread errors that would end the user's process. Drops other unread events."""
        unread = self.caller.take_events(self.handle)
        return [str(event.args.get("message", "")) for event in unread if event.name == "uncaught"]

    def _wait(
        self, names: set[str], what: str, within_ms: int, where: Callable[[DriverEvent], bool] | None = None
    ) -> DriverEvent:
        self.caller.transcript.record_act("wait", what)
        seen = "nothing"
        with self.caller.waiting(what, within_ms) as wait:
            for slice_ms in self.caller.cancellation.slices(within_ms):
                try:
                    return self.caller.wait_event(self.handle, names=names, deadline_ms=slice_ms, where=where)
                except EventTimeout as timeout:
                    seen = timeout.seen
                # The limit may shrink during the wait (see `wait_limits`), so it is checked after each slice.
                if wait.left_ms <= 0:
                    break
            raise wait.mismatch(what, f"no event {' or '.join(sorted(names))}; seen: {seen}")


class QueueHandle(ParticipantHandle):
    """A Queue, and the jobs in it."""

    def add(self, name: str = "job", data: Any = None, *, raw: str | None = None, **opts: Any) -> str:
        """Queue.add; returns the id. `raw` is the exact JSON text of the data; `opts` are BullMQ's JobsOptions."""
        data_raw = json_text({} if data is None else data) if raw is None else raw
        # A busy machine needs tens of seconds for 10 MB.
        deadline_ms = CALL_DEADLINE_MS + len(data_raw) // CHARACTERS_PER_MS
        return self.call(queue.Add(name=name, data_raw=data_raw, opts=opts), deadline_ms=deadline_ms).id

    def refuses(self, *, raw: str = "{}", **opts: Any) -> str:
        """Add a job that a library may refuse; returns the message of its error, empty if it was added."""
        deadline_ms = CALL_DEADLINE_MS + len(raw) // CHARACTERS_PER_MS
        return self.call(library.Refuses(data_raw=raw, opts=opts), deadline_ms=deadline_ms).message

    def add_bulk(self, *jobs: tuple[str, Any, dict[str, Any]]) -> list[str]:
        """Queue.addBulk of (name, data, opts)."""
        new = [queue.NewJob(name=name, data_raw=json_text(data), opts=opts) for name, data, opts in jobs]
        return self.call(queue.AddBulk(jobs=new)).ids

    def pause(self) -> None:
        """Queue.pause."""
        self.call(queue.Pause())

    def resume(self) -> None:
        """Queue.resume."""
        self.call(queue.Resume())

    def is_paused(self) -> bool:
        """Queue.isPaused."""
        return self.call(queue.IsPaused()).value

    def job(self, job_id: str) -> JobView | None:
        """Queue.getJob."""
        return self.call(queue.GetJob(job=job_id)).job

    def jobs(self, *types: str, start: int = 0, end: int = -1, asc: bool = False) -> list[str | None]:
        """Queue.getJobs: the ids, in the client's order."""
        jobs = self.call(queue.GetJobs(types=list(types), start=start, end=end, asc=asc)).jobs
        return [job_view.id if job_view else None for job_view in jobs]

    def counts(self, *types: str) -> dict[str, int]:
        """Queue.getJobCounts."""
        return self.call(queue.GetJobCounts(types=list(types))).counts

    def state(self, job_id: str) -> str:
        """Queue.getJobState."""
        return self.call(queue.GetJobState(job=job_id)).state

    def logs(self, job_id: str, *, start: int = 0, end: int = -1, asc: bool = True) -> queue.JobLogs:
        """Queue.getJobLogs."""
        return self.call(queue.GetJobLogs(job=job_id, start=start, end=end, asc=asc))

    def log(self, job_id: str, row: str, *, keep: int | None = None) -> int:
        """Queue.addJobLog: number of rows kept."""
        return self.call(job.Log(job=job_id, row=row, keep_logs=keep)).count

    def progress(self, job_id: str, value: Any) -> None:
        """Job.updateProgress."""
        self.call(job.UpdateProgress(job=job_id, value_raw=json_text(value)))

    def update_data(self, job_id: str, value: Any) -> None:
        """Job.updateData."""
        self.call(job.UpdateData(job=job_id, data_raw=json_text(value)))

    def remove(self, job_id: str, *, children: bool = True) -> int:
        """Queue.remove: 1 removed, 0 locked."""
        return self.call(queue.Remove(job=job_id, remove_children=children)).count

    def promote(self, job_id: str) -> None:
        """Job.promote."""
        self.call(job.Promote(job=job_id))

    def retry(
        self,
        job_id: str,
        state: str = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        """Job.retry."""
        reset = {"reset_attempts_made": reset_attempts_made, "reset_attempts_started": reset_attempts_started}
        self.call(msgspec.convert({"job": job_id, "state": state, **reset}, job.Retry))

    def dedup_owner(self, dedup_id: str) -> str | None:
        """Queue.getDeduplicationJobId."""
        return self.call(queue.GetDeduplicationJobId(id=dedup_id)).value

    def free_own_dedup_id(self, job_id: str) -> bool:
        """Job.removeDeduplicationKey: whether the id was the job's."""
        return self.call(job.RemoveJobDeduplicationKey(job=job_id)).value

    def schedule(
        self, scheduler: str, repeat: dict[str, Any], *, name: str | None = None, data: Any = None, **opts: Any
    ) -> JobView | None:
        """Queue.upsertJobScheduler; returns the next job. `opts` are those of its jobs."""
        data_raw = None if data is None else json_text(data)
        op = flow.UpsertJobScheduler(id=scheduler, repeat=repeat, name=name, data_raw=data_raw, opts=opts or None)
        return self.call(op).job

    def wait_local(self, name: str, job_id: str | None = None) -> DriverEvent:
        """The queue's own event (`removed`, `progress`, ...), for this job if one is named.

        Raises OperationUnsupported if the client's queues report nothing.
        """
        if not self.caller.can("queue-events"):
            raise OperationUnsupported(f"event {name}", "this client's queues report no events")
        where = (lambda event: event.args.get("job") == job_id) if job_id else None
        return self._wait({name}, f"the queue reports {name}" + (f" of job {job_id}" if job_id else ""), 5000, where)

    def scheduler(self, scheduler: str) -> flow.SchedulerView | None:
        """Queue.getJobScheduler."""
        return self.call(flow.GetJobScheduler(id=scheduler)).scheduler

    def unschedule(self, scheduler: str) -> bool:
        """Queue.removeJobScheduler."""
        return self.call(flow.RemoveJobScheduler(id=scheduler)).value


class WorkerHandle(ParticipantHandle):
    """A Worker: claimed and finished step by step, or running its own loop."""

    @property
    def reports_events(self) -> bool:
        """Whether the client's workers report events."""
        return self.caller.reports_by_itself(self.handle)

    def claim(self, token: str = "token-1") -> JobView | None:
        """Worker.getNextJob under this lock token; None when there is nothing to do."""
        return self.call(worker.GetNextJob(token=token)).job

    def claim_one(self, token: str = "token-1") -> JobView:
        """Claim a job that must be there."""
        job_view = self.claim(token)
        if job_view is None:
            # If a job could be claimed, the claim is at fault; otherwise the operation that should have added one.
            where = "answer.worker.getNextJob.job" if self.redis.has_work() else ""
            what = "a worker that asks for a job gets the waiting one"
            raise Mismatch(what, expected="a job", actual="nothing", where=where)
        return job_view

    def complete(
        self,
        job_id: str,
        value: Any = None,
        token: str = "token-1",
        *,
        raw: str | None = None,
        fetch_next: bool = False,
    ) -> JobView | None:
        """Job.moveToCompleted; returns the next job if one was fetched."""
        value_raw = json_text(value) if raw is None else raw
        op = worker.MoveToCompleted(job=job_id, token=token, value_raw=value_raw, fetch_next=fetch_next)
        return self.call(op).job

    def fail(
        self,
        job_id: str,
        message: str = "boom",
        token: str = "token-1",
        *,
        unrecoverable: bool = False,
        fetch_next: bool = False,
    ) -> JobView | None:
        """Job.moveToFailed: the client decides between retry, delay and final failure."""
        op = worker.MoveToFailed(
            job=job_id, token=token, message=message, unrecoverable=unrecoverable, fetch_next=fetch_next
        )
        return self.call(op).job

    def extend_lock(self, job_id: str, duration_ms: int, token: str = "token-1") -> bool:
        """Job.extendLock."""
        return self.call(worker.ExtendLock(job=job_id, token=token, duration_ms=duration_ms)).value

    def extend_locks(self, jobs: Sequence[str], tokens: Sequence[str], duration_ms: int) -> list[str]:
        """Renew several locks at once; returns the ids that could not be renewed."""
        return self.call(worker.ExtendLocks(jobs=list(jobs), tokens=list(tokens), duration_ms=duration_ms)).ids

    def wait_for_children(self, job_id: str, token: str = "token-1") -> bool:
        """Job.moveToWaitingChildren: False when nothing is pending."""
        return self.call(worker.MoveToWaitingChildren(job=job_id, token=token)).value

    def check_stalled(self) -> list[str]:
        """One stalled check, now; returns the recovered ids."""
        return self.call(worker.CheckStalled()).ids

    def cancel(self, job_id: str, reason: str | None = None) -> bool:
        """Worker.cancelJob: whether the job runs at this worker."""
        return self.call(worker.CancelJob(job=job_id, reason=reason)).value

    def next_job(self, *, within_ms: int = 8000) -> JobEvent:
        """Processor `ask`: the next job that the loop passes to its processor."""
        event = self._wait({"job"}, "the worker's loop passes a job to its processor", within_ms)
        return msgspec.convert(event.args, JobEvent)

    def resolve(self, job_id: str, outcome: worker.Outcome = "complete", **arguments: Any) -> None:
        """Processor `ask`: end the job with this outcome (`value_raw`, `message`, `ms`)."""
        self.call(worker.Resolve(job=job_id, outcome=outcome, **arguments))

    def wait_local(self, name: str, job_id: str | None = None, *, within_ms: int = 8000) -> DriverEvent:
        """The worker's own event (`completed`, `failed`, `error`, ...), for this job if one is named.

        If the client's workers report nothing, the end of a job is read from Redis. Raises OperationUnsupported for
        events that Redis does not show.
        """
        if not self.reports_events:
            return self._wait_in_redis(name, job_id, within_ms)
        return self._wait(
            {name},
            f"the worker reports {name}" + (f" of job {job_id}" if job_id else ""),
            within_ms,
            (lambda event: event.args.get("job") == job_id) if job_id else None,
        )

    def wait_for_error(self, *others: str) -> None:
        """Wait for the worker's event `error`, or one of `others`. Returns at once if its workers report nothing."""
        if self.reports_events:
            self._wait({"error", *others}, f"the worker reports {' or '.join(('error', *others))}", 8000)

    def _wait_in_redis(self, name: str, job_id: str | None, within_ms: int) -> DriverEvent:
        if job_id is None or name not in IN_STREAM:
            raise OperationUnsupported(
                f"event {name}", "this client's workers report no events, and Redis does not show it"
            )
        for slice_ms in self.caller.cancellation.slices(within_ms):
            if self._shows(name, job_id):
                return DriverEvent(handle=self.handle, name=name, args={"job": job_id})
            self.caller.cancellation.sleep(slice_ms / 1000)
        raise Mismatch(
            f"job {job_id} is {name}",
            expected=f"within {within_ms} ms",
            actual=self.redis.state(job_id),
            timing=Timing.of_wait(within_ms),
        )

    def _shows(self, name: str, job_id: str) -> bool:
        """Whether the job is in that state in Redis, or was according to the event stream."""
        # Read the stream first: a job with `removeOnComplete` is gone at once, and only its event remains.
        in_stream = any((entry.get("event"), entry.get("jobId")) == (name, job_id) for entry in self.redis.events())
        return in_stream or self.redis.state(job_id) == [name]

    def errors(self) -> list[str]:
        """The texts of the unread `error` events. Drops other unread events.

        Raises OperationUnsupported if the client's workers report nothing.
        """
        return [str(event.args.get("message", "")) for event in self.local_events() if event.name == "error"]

    def local_events(self) -> list[DriverEvent]:
        """The worker's unread events, in their order; they count as read afterwards.

        Raises OperationUnsupported if the client's workers report nothing.
        """
        if not self.reports_events:
            raise OperationUnsupported(
                "events of workers", "this client's workers report no events, and Redis does not show it"
            )
        return self.caller.take_events(self.handle)


class EventsHandle(ParticipantHandle):
    """A QueueEvents reader."""

    def wait_for(self, name: str, job_id: str | None = None, *, within_ms: int = 8000) -> QueueEvent:
        """The next event of this name (and job), delivered by the client's reader."""

        def matches(event: DriverEvent) -> bool:
            seen = event.args
            return seen.get("name") == name and job_id in (None, seen.get("fields", {}).get("jobId"))

        event = self._wait({"queue-event"}, f"the event reader delivers {name}", within_ms, matches)
        return msgspec.convert(event.args, QueueEvent)

    def next_delivery(self, *, within_ms: int = 8000) -> DriverEvent:
        """The next entry that the reader delivers. Raises Mismatch if it reports an `error` instead."""
        event = self._wait({"queue-event", "error"}, "the event reader delivers every entry of the stream", within_ms)
        if event.name == "error":
            raise Mismatch(
                "the event reader works without error", expected="no error", actual=event.args.get("message")
            )
        return event


class FlowHandle(ParticipantHandle):
    """A FlowProducer."""

    def add(self, tree: dict[str, Any], *, queues_options: dict[str, dict[str, Any]] | None = None) -> flow.FlowNode:
        """FlowProducer.add of {name, queue, data_raw?, opts?, children?}; `queues_options`: job defaults by queue."""
        return self.call(flow.AddFlow(flow=msgspec.convert(tree, flow.FlowJob), queues_options=queues_options))

    def add_bulk(self, *trees: dict[str, Any]) -> list[flow.FlowNode]:
        """FlowProducer.addBulk of such trees."""
        return self.call(flow.AddFlows(flows=msgspec.convert(trees, list[flow.FlowJob]))).flows

    def get(self, job_id: str, *, queue: str = "q", depth: int = 10, max_children: int = 20) -> flow.FlowNode | None:
        """FlowProducer.getFlow below a job."""
        return self.call(flow.GetFlow(job=job_id, queue=queue, depth=depth, max_children=max_children)).flow


class RelayHandle(ParticipantHandle):
    """A node of a relay."""

    def subscribe(self, pattern: str) -> None:
        """Relay.subscribe; messages are read with `next_message`."""
        self.call(relay.Subscribe(pattern=pattern))

    def publish(self, topic: str, data: Any = None, *, retain_ms: int = 0) -> tuple[int, int]:
        """Relay.publish; returns how many nodes, and how many of their subscriptions, it is for."""
        answer = self.call(relay.Publish(topic=topic, data_raw=json_text(data), retain_ms=retain_ms))
        return answer.nodes, answer.endpoints

    def next_message(self) -> MessageEvent:
        """The next message that any listener of this node gets."""
        event = self._wait({"message"}, "a listener of the relay gets a message", 8000)
        return msgspec.convert(event.args, MessageEvent)

    def wait_local(self, name: str) -> DriverEvent:
        """The relay's own event (`recovered`, `swept`, `lag`)."""
        return self._wait({name}, f"the relay reports {name}", 8000)


def _never_closed(within_ms: int, seen: object) -> Mismatch:
    return Mismatch(
        "close ends",
        expected=f"within {within_ms} ms",
        actual=str(seen),
        where="close.ends",
        timing=Timing.of_wait(within_ms),
    )
