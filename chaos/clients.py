"""The client's part in a run: producers that add jobs, and workers whose processors the kit plays."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import msgspec

from chaos.processes import CALL_DEADLINE_MS, ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.workload import (
    EVENTS_KEPT,
    LIMITED,
    NARROW,
    NARROW_CONCURRENCY,
    QUEUES,
    RATE,
    PlannedCall,
    ProcessorBehaviour,
)
from conformance.checkers.histories.history import Fail, Info, Invoke, Ok, RunEnded, RunStarted
from conformance.driver.errors import DriverBroken, EventTimeout, OperationFailed, OperationIndeterminate
from conformance.driver.messages import DriverEvent
from conformance.driver.ops.base import Ids, JobRef, JobView
from conformance.driver.ops.flow import FlowNode
from conformance.driver.ops.queue import SetGlobalConcurrency
from conformance.driver.ops.worker import Outcome, Resolve

RETRY_S = 0.05
ALL_EVENTS = {"job", "active", "completed", "failed", "stalled", "drained", "paused", "resumed", "closed", "error"}
POLL_MS = 200
ERRORS_KEPT = 200
_BEHAVIOUR = msgspec.json.Decoder(ProcessorBehaviour)


class ChaosProducer:
    """Makes one call after the other, `pause_s` apart; when its process has died it waits until it is started again."""

    def __init__(
        self,
        process: ClientProcess,
        calls: Iterator[PlannedCall],
        recorder: HistoryRecorder,
        prefix: str,
        pause_s: float,
    ) -> None:
        self.process = process
        self._calls = calls
        self._recorder = recorder
        self._prefix = prefix
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=process.name)
        process.open_handles = self.open_handles

    def open_handles(self, process: ClientProcess) -> None:
        """Open a queue handle for each queue, and a flow handle."""
        for queue in QUEUES:
            options = {"streams": {"events": {"maxLen": EVENTS_KEPT}}}
            process.open(f"queue-{queue}", "queue", queue, self._prefix, options=options)
        process.open("flow", "flow", "", self._prefix)

    def set_limits(self) -> None:
        """Set the global concurrency of the narrow queue."""
        self.process.call(SetGlobalConcurrency(concurrency=NARROW_CONCURRENCY), f"queue-{NARROW}")

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
        while not self.process.alive:
            if self._ended.wait(RETRY_S):
                return False
        return True

    def _carry_out(self, call: PlannedCall) -> None:
        number, who = self._recorder.number(), self.process.name
        name = type(call.op).op
        handle = "flow" if call.role == "flow" else f"queue-{call.queue}"
        args = {"queue": call.queue}
        now = self._recorder.now_ms
        self._recorder.put(Invoke(at_ms=now(), process=who, call=number, op=name, jobs=list(call.jobs), args=args))
        try:
            answer = self.process.call(call.op, handle)
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
        return [answer.id, *(job_id for child in answer.children for job_id in ids_in(child))]
    return []


class ProcessorTimer:
    """Carries out things later, in threads: the ends of processors."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._number = 0
        self._ended = False
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="processor")
        self._thread = threading.Thread(target=self._run, daemon=True, name="processor timer")

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Drop what is not done yet."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do it in so many ms."""
        with self._changed:
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + delay_ms / 1000, self._number, action))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._ended:
                    return
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                action = heapq.heappop(self._due)[2]
            self._pool.submit(action)


class ChaosWorker:
    """A process with the client's real loop on every queue, whose processors the kit plays and records."""

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
    ) -> None:
        self.process = process
        self.errors: list[str] = []
        """What error listeners were told last."""
        self._recorder = recorder
        self._timer = timer
        self._prefix = prefix
        self._options = options
        self._queues = queues
        self._label = label
        self._ended = threading.Event()
        self.running: dict[tuple[str, str], float] = {}
        """Jobs (queue, id) whose processor has been called and has not ended, and when that was."""
        process.open_handles = self.open_handles

    @property
    def running_since_ms(self) -> float:
        """When the oldest of the jobs that run was begun; infinite where none runs."""
        return min(list(self.running.values()), default=math.inf)

    def handle(self, queue: str) -> str:
        """The name of its handle on a queue."""
        return f"{self._label}-{queue}"

    def stop(self) -> None:
        """Listen no more, though the process may live on."""
        self._ended.set()

    def open_handles(self, process: ClientProcess) -> None:
        """Open the workers, and listen to each in a thread of its own."""
        self.running.clear()
        with ThreadPoolExecutor(len(self._queues)) as pool:
            for opened in [pool.submit(self._open, process, queue) for queue in self._queues]:
                opened.result()

    def _open(self, process: ClientProcess, queue: str) -> None:
        limiter = {"limiter": {"max": RATE.most, "duration": RATE.duration_ms}} if queue == LIMITED else {}
        options = {**self._options, **limiter}
        process.open(self.handle(queue), "worker", queue, self._prefix, processor="ask", options=options)
        threading.Thread(target=self._listen, args=(queue,), daemon=True, name=f"{process.name} {queue}").start()

    def _listen(self, queue: str) -> None:
        """Until the driver ends (or `stop`); a restart has listeners of its own."""
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
        begun_ms = self._recorder.now_ms()
        self._recorder.put(RunStarted(at_ms=begun_ms, **about))
        self.running[queue, job.id] = begun_ms
        behaviour = _behaviour_of(job)
        outcome = _outcome_of(behaviour, job)
        # Of now: a process that takes this one's place runs the job anew, and knows nothing of this end.
        connection = self.process.connection

        def end() -> None:
            self._recorder.put(RunEnded(at_ms=self._recorder.now_ms(), outcome=outcome, **about))
            self.running.pop((queue, job.id), None)
            with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
                value = msgspec.json.encode({"token": token}).decode()
                resolve = Resolve(job=job.id, outcome=outcome, value_raw=value, message="as ordered", ms=50)
                connection.call(resolve, handle=self.handle(queue), deadline_ms=CALL_DEADLINE_MS)

        self._timer.after(behaviour.work_ms, end)


def _behaviour_of(job: JobView) -> ProcessorBehaviour:
    """What the data says; a job whose hash is gone has none."""
    try:
        return _BEHAVIOUR.decode(job.data_raw or "{}")
    except msgspec.MsgspecError:
        return ProcessorBehaviour()


def _outcome_of(behaviour: ProcessorBehaviour, job: JobView) -> Outcome:
    """How the processor ends."""
    if behaviour.kind == "fails" or (behaviour.kind == "retries" and (job.attempts_made or 0) < behaviour.fails):
        return "fail"
    if behaviour.kind == "waits" and (job.attempts_started or 0) <= 1:
        return "wait"
    if behaviour.kind == "asks-children":
        return "waiting-children"
    if behaviour.kind == "delays" and (job.attempts_started or 0) <= 1:
        return "delay"
    return "complete"
