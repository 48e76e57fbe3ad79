"""The client's part in a run: producers that add jobs, and workers whose processors the kit simulates."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakValueDictionary

import msgspec

from chaos.outcomes import OutcomeRecorder
from chaos.processes import CALL_DEADLINE_MS, ClientProcess
from chaos.readers import ChaosReader
from chaos.recorder import HistoryRecorder
from chaos.workload import (
    EVENTS_KEPT,
    LIMITED,
    MAIN,
    QUEUES,
    RATE,
    ChaosWorkload,
    PlannedCall,
    ProcessorBehaviour,
)
from conformance.checkers.histories.history import (
    Fail,
    HandleChange,
    HandleChanged,
    Info,
    Invoke,
    Ok,
    RunStarted,
)
from conformance.driver.errors import (
    DriverBroken,
    EventTimeout,
    OperationFailed,
    OperationIndeterminate,
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.driver.messages import DriverEvent
from conformance.driver.ops.base import Ids, JobRef, JobView
from conformance.driver.ops.flow import FlowNode
from conformance.driver.ops.lifecycle import Close
from conformance.driver.ops.queue import AddBulk
from conformance.driver.ops.worker import Outcome, Resolve
from conformance.driver.transports import ChildProcess

# Short, so that a producer that was restarted goes on at once.
RETRY_S = 0.05
ALL_EVENTS = {"job", "active", "completed", "failed", "stalled", "drained", "paused", "resumed", "closed", "error"}
# Short, so that a listener notices `stop` soon.
POLL_MS = 200
# Bounded: a worker that spins on errors emits thousands of them.
ERRORS_KEPT = 200
CLOSE_DEADLINE_MS = 15_000
"""A graceful close waits for jobs that take a third of a second."""
_BEHAVIOUR = msgspec.json.Decoder(ProcessorBehaviour)


class ChaosProducer:
    """Makes one call after the other, `pause_s` apart. If its process has died, it waits until it is started again."""

    def __init__(
        self,
        process: ClientProcess,
        workload: ChaosWorkload,
        recorder: HistoryRecorder,
        prefix: str,
        pause_s: float,
        *,
        reader: ChaosReader | None = None,
    ) -> None:
        self.process = process
        self._workload = workload
        self._recorder = recorder
        self._prefix = prefix
        self._pause_s = pause_s
        self._reader = reader
        self._calm = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=process.name)
        process.open_handles = self.open_handles

    def open_handles(self, process: ClientProcess) -> None:
        """Open a queue handle for each queue, a flow handle and the reader."""
        for queue in QUEUES:
            self._open_queue(process, queue)
        with suppress(OperationUnsupported):
            process.open("flow", "flow", "", self._prefix)
        if self._reader is not None:
            self._reader.open(process)

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def calm(self) -> None:
        """No further fault will come: leave and join again, then make the calls that give every worker a job."""
        self._calm.set()

    def stop(self) -> None:
        """Make no further call."""
        self._ended.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the call in flight; returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _open_queue(self, process: ClientProcess, queue: str) -> None:
        # Long streams: a trimmed one could not show whether a reader left something out.
        options = {"streams": {"events": {"maxLen": EVENTS_KEPT}}}
        process.open(f"queue-{queue}", "queue", queue, self._prefix, options=options)

    def _run(self) -> None:
        is_calm = False
        # The calls after the last fault come once, between two calls of the endless series.
        for call in self._workload:
            if not is_calm and self._calm.is_set():
                is_calm = True
                self._turn_over()
                for one in self._workload.calm():
                    self._carry_out(one)
            if self._ended.is_set():
                if self.process.alive:
                    self._carry_out(self._workload.farewell())
                return
            if self._wait_for_life():
                self._carry_out(call)
            self._ended.wait(self._pause_s)

    def _turn_over(self) -> None:
        """Close the handle of the main queue, as a producer that leaves, and open it again, as one that joins."""
        with suppress(DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported):
            self.process.call(Close(), f"queue-{MAIN}")
            self._open_queue(self.process, MAIN)

    def _wait_for_life(self) -> bool:
        while not self.process.alive:
            # A dead process is not an error here: the nemesis starts it again.
            if self._ended.wait(RETRY_S):
                return False
        return True

    def _carry_out(self, call: PlannedCall) -> None:
        """Make one call. If the client has no bulk operation, make one call for each job."""
        with suppress(DriverBroken):
            if isinstance(call.op, AddBulk) and AddBulk.op not in self.process.connection.ready.ops:
                for single in call.singles():
                    self._call(single)
                return
        self._call(call)

    def _call(self, call: PlannedCall) -> None:
        number, who, now = self._recorder.number(), self.process.name, self._recorder.now_ms
        handle = "flow" if call.role == "flow" else f"queue-{call.queue}"
        invocation = Invoke(
            at_ms=now(), process=who, call=number, op=type(call.op).op, jobs=list(call.jobs), args=call.about
        )
        # Recorded before the call: after it the job may already run.
        self._recorder.put(invocation)
        try:
            answer = self.process.call(call.op, handle)
        # A refusal is certain; the other errors below leave the outcome open.
        except OperationFailed as error:
            self._recorder.put(Fail(at_ms=now(), process=who, call=number, error=str(error)))
        except OperationUnanswered:  # before its base class
            self._recorder.put(Ok(at_ms=now(), process=who, call=number))
        except OperationUnsupported as error:
            self._recorder.put(Fail(at_ms=now(), process=who, call=number, error=str(error), unsupported=True))
        except (OperationIndeterminate, DriverBroken) as error:
            self._recorder.put(Info(at_ms=now(), process=who, call=number, error=str(error).splitlines()[0]))
        else:
            # Not strict: a deduplicated add plans no job, and still returns an id.
            ids = dict(zip((job.name for job in call.jobs), ids_in(answer), strict=False))
            self._recorder.put(Ok(at_ms=now(), process=who, call=number, ids=ids))


def ids_in(answer: Any) -> list[str]:
    """The ids in an answer, in the order of the planned jobs: a flow's root before its children."""
    if isinstance(answer, JobRef):
        return [answer.id]
    if isinstance(answer, Ids):
        return answer.ids
    if isinstance(answer, FlowNode):
        return [answer.id, *(job_id for child in answer.children for job_id in ids_in(child))]
    return []


class ProcessorTimer:
    """Runs delayed actions in threads: the ends of processors."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._number = 0
        self._ended = False
        # Many threads, because each of them blocks until its driver answers.
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="processor")
        self._thread = threading.Thread(target=self._run, daemon=True, name="processor timer")

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the pending actions."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()
        # Without waiting: an action may wait for a driver that is gone.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Schedule an action in this many ms."""
        with self._changed:
            # The number decides between actions of the same time, because functions cannot be compared.
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + delay_ms / 1000, self._number, action))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._ended:
                    return
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                # Wait until the next action is due, or until an earlier one is added.
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                action = heapq.heappop(self._due)[2]
            # In the pool, because an action blocks and others are due meanwhile.
            self._pool.submit(action)


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run of a job. The id alone is not unique: after a loss of data, Redis may give it to another job.

    `work_ms`: how long its processor works.
    """

    queue: str
    job: str
    token: str
    started_ms: float
    work_ms: float


class _Turn:
    """A place in the queue of runs of one job id in one process."""

    def __init__(self, before: _Turn | None) -> None:
        self.ended = threading.Event()
        self._before = before

    def wait(self, timeout_s: float) -> None:
        """Wait until the runs before have ended."""
        if self._before is not None:
            self._before.ended.wait(timeout_s)
            self._before = None


class _Turns:
    """The last turn of each job id, until it is released."""

    def __init__(self) -> None:
        # Weak, so that turns of finished runs need no clean-up.
        self._last: WeakValueDictionary[tuple[int, str, str], _Turn] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, connection: object, queue: str, job: str) -> _Turn:
        """Take a place behind all runs of this id that have started."""
        with self._lock:
            # By connection: a restarted process knows nothing about the runs of the one before it.
            key = (id(connection), queue, job)
            turn = self._last[key] = _Turn(self._last.get(key))
            return turn


class ChaosWorker:
    """A process that runs the client's real worker on every queue. The kit simulates and records its processors."""

    def __init__(
        self,
        process: ClientProcess,
        recorder: HistoryRecorder,
        timer: ProcessorTimer,
        prefix: str,
        options: dict[str, Any],
        *,
        queues: tuple[str, ...] = QUEUES,
        label: str = "worker",
        reader: ChaosReader | None = None,
    ) -> None:
        self.process = process
        self._reader = reader
        self.errors: list[str] = []
        """The last errors that error listeners received."""
        self._recorder = recorder
        self._timer = timer
        self._prefix = prefix
        self._options = options
        self._queues = queues
        self._label = label
        self._ended = threading.Event()
        self._heard: dict[str, ChildProcess] = {}
        """The driver connection on which the kit listens to each queue's handle."""
        self.running: dict[RunKey, float] = {}
        """Runs whose processor was called and has not ended, and when it was called."""
        self._turns = _Turns()
        self._run_ends = OutcomeRecorder(recorder)
        process.open_handles = self.open_handles

    @property
    def running_since_ms(self) -> float:
        """When the oldest running job was started; infinite if none runs."""
        return min(list(self.running.values()), default=math.inf)

    def handle(self, queue: str) -> str:
        """The name of its handle for a queue."""
        return f"{self._label}-{queue}"

    def is_at_work(self, queue: str, *, for_ms: float) -> bool:
        """Whether it runs a job that has at least this much work left."""
        later_ms = self._recorder.now_ms() + for_ms
        return any(run.queue == queue and run.started_ms + run.work_ms > later_ms for run in list(self.running))

    def stop(self) -> None:
        """Stop listening; the process may live on."""
        self._ended.set()

    def open_handles(self, process: ClientProcess) -> None:
        """Open the workers, and listen to each in its own thread."""
        # The runs of the process before ended with it.
        self.running.clear()
        # In parallel, because opening a worker is mostly waiting.
        with ThreadPoolExecutor(len(self._queues)) as pool:
            for opened in [pool.submit(self._open, process, queue) for queue in self._queues]:
                opened.result()
        if self._reader is not None:
            self._reader.open(process)

    def leave(self, queue: str) -> bool:
        """Close the worker of a queue as its user would; returns whether it confirmed."""
        # Recorded before the call: claims after it count against the worker.
        self._note(queue, "closing")
        try:
            self.process.connection.call(Close(), handle=self.handle(queue), deadline_ms=CLOSE_DEADLINE_MS)
        except OperationUnsupported as error:
            self._note(queue, "absent", str(error))
            return False
        except (DriverBroken, OperationFailed, OperationIndeterminate) as error:
            self._note(queue, "not-closed", str(error).splitlines()[0])
            return False
        self._note(queue, "closed")
        return True

    def join(self, queue: str) -> None:
        """Open the closed worker of a queue. Raises what `ClientProcess.open` raises."""
        self._open_handle(self.process, queue)

    def _note(self, queue: str, change: HandleChange, error: str = "") -> None:
        line = HandleChanged(
            at_ms=self._recorder.now_ms(),
            process=self.process.name,
            role="worker",
            queue=queue,
            change=change,
            error=error,
        )
        self._recorder.put(line)

    def _open_handle(self, process: ClientProcess, queue: str) -> None:
        limiter = {"limiter": {"max": RATE.most, "duration": RATE.duration_ms}} if queue == LIMITED else {}
        options = {**self._options, **limiter}
        # Before the call: a worker may run a job before the driver answers the call that opens it.
        self._note(queue, "opened")
        process.open(self.handle(queue), "worker", queue, self._prefix, processor="ask", options=options)

    def _open(self, process: ClientProcess, queue: str) -> None:
        self._open_handle(process, queue)
        if self._heard.get(queue) is process.connection:
            return  # its handles were closed and opened again: two listeners would record out of order
        self._heard[queue] = process.connection
        threading.Thread(target=self._listen, args=(queue,), daemon=True, name=f"{process.name} {queue}").start()

    def _listen(self, queue: str) -> None:
        """Listen until the driver ends (or `stop`); a restart starts new listeners."""
        connection = self.process.connection
        while not self._ended.is_set():
            try:
                event = connection.wait_event(self.handle(queue), names=ALL_EVENTS, deadline_ms=POLL_MS)
            except EventTimeout:
                continue
            except DriverBroken:
                return
            if event.name == "job":
                self._run_job(queue, event)
            elif event.name == "error":
                self.errors = [*self.errors[-ERRORS_KEPT:], str(event.args.get("message"))]

    def _run_job(self, queue: str, event: DriverEvent) -> None:
        job = msgspec.convert(event.args["job"], JobView)
        token = str(event.args.get("token"))
        about = {"process": self.process.name, "queue": queue, "job": job.id, "name": job.name, "token": token}
        started_ms = self._recorder.now_ms()
        # Before anything else, because the processor has been called now.
        self._recorder.put(RunStarted(at_ms=started_ms, **about))
        behaviour = _behaviour_of(job)
        run = RunKey(queue, job.id, token, started_ms, behaviour.work_ms)
        self.running[run] = started_ms
        outcome = _outcome_of(behaviour, job)
        # The process of now: the one that replaces it runs the job again, and does not know about this end.
        connection = self.process.connection
        turn = self._turns.of(connection, queue, job.id)

        def end() -> None:
            # Drivers identify a run by the id of its job, so of two runs with the same id the older one must end first.
            # With a deadline: the older run may never end if its worker is gone.
            turn.wait(CALL_DEADLINE_MS / 1000)
            self.running.pop(run, None)
            self._run_ends.end(outcome, about, tell)
            turn.ended.set()

        def tell(outcome: Outcome) -> None:
            value = msgspec.json.encode({"token": token}).decode()
            # The token in the value shows which run's result was stored.
            resolve = Resolve(job=job.id, outcome=outcome, value_raw=value, message="as ordered", ms=50)
            connection.call(resolve, handle=self.handle(queue), deadline_ms=CALL_DEADLINE_MS)

        self._timer.after(behaviour.work_ms, end)


def _behaviour_of(job: JobView) -> ProcessorBehaviour:
    """The behaviour that the data describes. A job whose hash was lost has no data."""
    try:
        return _BEHAVIOUR.decode(job.data_raw or "{}")
    except msgspec.MsgspecError:
        return ProcessorBehaviour()


def _outcome_of(behaviour: ProcessorBehaviour, job: JobView) -> Outcome:
    """The outcome of the processor."""
    # Attempts made, so that a recovered run does not use up a failure.
    if behaviour.kind == "fails" or (behaviour.kind == "retries" and (job.attempts_made or 0) < behaviour.fails):
        return "fail"
    # Once only: otherwise the job would go back for ever.
    if behaviour.kind == "waits" and (job.attempts_started or 0) <= 1:
        return "wait"
    if behaviour.kind == "asks-children":
        return "waiting-children"
    if behaviour.kind == "delays" and (job.attempts_started or 0) <= 1:
        return "delay"
    return "complete"
