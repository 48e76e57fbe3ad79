"""A worker process: the client's real loop on every queue, whose processors the kit plays and records."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import msgspec

from chaos.members import CALL_DEADLINE_MS, Member
from chaos.recorder import Recorder
from chaos.workload import LIMITED, QUEUES, RATE, Orders
from conformance.checkers.histories.lines import RunEnded, RunStarted
from conformance.driver.connection import DriverBroken, EventTimeout, OperationFailed, OperationIndeterminate
from conformance.driver.messages import Event
from conformance.driver.ops.base import JobView
from conformance.driver.ops.worker import Outcome, Resolve

ALL_EVENTS = {"job", "active", "completed", "failed", "stalled", "drained", "paused", "resumed", "closed", "error"}
POLL_MS = 200
ERRORS_KEPT = 200
_ORDERS = msgspec.json.Decoder(Orders)


class Clerk:
    """Carries out things later, in threads: the ends of processors."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._number = 0
        self._ended = False
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="processor")
        self._thread = threading.Thread(target=self._run, daemon=True, name="clerk")

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

    def after(self, ms: float, what: Callable[[], None]) -> None:
        """Do it in so many ms."""
        with self._changed:
            self._number += 1
            heapq.heappush(self._due, (time.monotonic() + ms / 1000, self._number, what))
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
                what = heapq.heappop(self._due)[2]
            self._pool.submit(what)


class WorkerMember:
    """A member whose handles are workers, one per queue."""

    def __init__(
        self,
        member: Member,
        recorder: Recorder,
        clerk: Clerk,
        prefix: str,
        options: dict[str, Any],
        *,
        queues: tuple[str, ...] = QUEUES,
        label: str = "worker",
    ) -> None:
        self.member = member
        self.errors: list[str] = []
        """What error listeners were told last."""
        self._recorder = recorder
        self._clerk = clerk
        self._prefix = prefix
        self._options = options
        self._queues = queues
        self._label = label
        self._ended = threading.Event()
        self.running: dict[tuple[str, str], float] = {}
        """Jobs (queue, id) whose processor has been called and has not ended, and when that was."""
        member.furnish = self.furnish

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

    def furnish(self, member: Member) -> None:
        """Open the workers, and listen to each in a thread of its own."""
        self.running.clear()
        with ThreadPoolExecutor(len(self._queues)) as pool:
            for opened in [pool.submit(self._open, member, queue) for queue in self._queues]:
                opened.result()

    def _open(self, member: Member, queue: str) -> None:
        limiter = {"limiter": {"max": RATE.most, "duration": RATE.duration_ms}} if queue == LIMITED else {}
        options = {**self._options, **limiter}
        member.open(self.handle(queue), "worker", queue, self._prefix, processor="ask", options=options)
        threading.Thread(target=self._listen, args=(queue,), daemon=True, name=f"{member.name} {queue}").start()

    def _listen(self, queue: str) -> None:
        """Until the driver ends (or `stop`); a restart has listeners of its own."""
        connection = self.member.connection
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

    def _run_job(self, queue: str, event: Event) -> None:
        job = msgspec.convert(event.args["job"], JobView)
        token = str(event.args.get("token"))
        about = {"process": self.member.name, "queue": queue, "job": job.id, "name": job.name, "token": token}
        begun_ms = self._recorder.now_ms()
        self._recorder.put(RunStarted(at_ms=begun_ms, **about))
        self.running[queue, job.id] = begun_ms
        orders = _orders(job)
        outcome = outcome_of(orders, job)
        connection = (
            self.member.connection
        )  # a process that takes its place runs the job anew, and knows nothing of this

        def end() -> None:
            self._recorder.put(RunEnded(at_ms=self._recorder.now_ms(), outcome=outcome, **about))
            self.running.pop((queue, job.id), None)
            with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
                value = msgspec.json.encode({"token": token}).decode()
                told = Resolve(job=job.id, outcome=outcome, value_raw=value, message="as ordered", ms=50)
                connection.call(told, handle=self.handle(queue), deadline_ms=CALL_DEADLINE_MS)

        self._clerk.after(orders.work_ms, end)


def _orders(job: JobView) -> Orders:
    """What the data says; a job whose hash is gone has none."""
    try:
        return _ORDERS.decode(job.data_raw or "{}")
    except msgspec.MsgspecError:
        return Orders()


def outcome_of(orders: Orders, job: JobView) -> Outcome:
    """How the processor ends."""
    if orders.kind == "fails" or (orders.kind == "retries" and (job.attempts_made or 0) < orders.fails):
        return "fail"
    if orders.kind == "waits" and (job.attempts_started or 0) <= 1:
        return "wait"
    if orders.kind == "asks-children":
        return "waiting-children"
    if orders.kind == "delays" and (job.attempts_started or 0) <= 1:
        return "delay"
    return "complete"
