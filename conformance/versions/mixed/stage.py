"""Runs the steps of a feature with a version for each role, and records which jobs were handed out and what is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event as ThreadEvent
from typing import Any

import msgspec

from conformance.checkers.handovers import LOST, TWICE, check_handover
from conformance.driver.errors import (
    DriverBroken,
    EventTimeout,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.ops import lifecycle, queue, worker
from conformance.driver.ops.lifecycle import RedisAddress, Role
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.keyspace import RedisKeyspace, StateDump
from conformance.observe.tables import Snapshot
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.steps.shapes import (
    HELD,
    CallStep,
    ClockStep,
    CounterStep,
    DrainStep,
    FaultStep,
    FeatureStep,
    WaitStep,
    addressed,
    opening,
)
from conformance.steps.words import WorkerWords

MAIN = "q"
"""The queue of all steps."""
CALL_DEADLINE_MS = 10_000
LOOP_LATE_MS = 4_000
"""A job that an idle loop starts later than this was not announced to it: BullMQ does it within milliseconds."""
DRAIN_MS = (0, 1_000, 9_000, 50_000, 240_000)
"""The time that passes before each round of a drain: five minutes in all."""
LONGEST_DRAIN = 40
"""Jobs that one round takes at most: a schedule may go on forever."""
PASSING = frozenset({"completed", "failed", "events", "id", "marker", "meta", "pc", "stalled-check"})
"""Keys that say nothing about jobs that have yet to run."""
SCORES_PER_MS = 4096
"""The scores of `delayed` are times in ms, with 12 bits of a counter behind them."""
LONGEST_WORK_MS, LONGEST_NEWS_MS = 12_000, 6_000
"""The longest wait for jobs to be finished, and for an event."""
_POLL_S = 0.05


@dataclass(frozen=True)
class Delivery:
    """A job that was handed to a worker. `at_ms`: since the start; of loops, only what is too late is counted.

    `step`: the number of the step, 0 for those of a loop.
    """

    job: str
    role: str
    at_ms: int
    step: int = 0


@dataclass(frozen=True)
class RefusedCall:
    """A call that a version did not make, by the number of its step."""

    step: int
    role: str
    op: str
    message: str


@dataclass(frozen=True)
class FeatureOutcome:
    """The observations of one run of a feature.

    `left`: what still holds jobs, as `key: names`. `waits`: jobs that are left where a worker takes them at a later
    time. `lost`, `twice`: findings of the hand-over checker. `unsupported`: why it could not be run; empty if it could.
    """

    deliveries: tuple[Delivery, ...] = ()
    refusals: tuple[RefusedCall, ...] = ()
    left: tuple[str, ...] = ()
    waits: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    unheard: tuple[str, ...] = ()
    unsupported: str = ""

    @property
    def counts(self) -> Counter[str]:
        """How often each job was handed out."""
        return Counter(delivery.job for delivery in self.deliveries)


@dataclass
class Stage:
    """Two versions on one Redis; runs one feature after the other.

    `drivers`: by the name of the version's side. Both must have the capability `clock`.
    """

    drivers: Mapping[str, RestartableDriver]
    address: RedisAddress
    redis: Any
    fresh_prefix: Callable[[], str]
    stopped: ThreadEvent
    """Set by the thread that waits for all runs, if it was interrupted."""

    def run(
        self, steps: Sequence[FeatureStep], sides: Mapping[str, str], worker_options: Mapping[str, Any]
    ) -> FeatureOutcome:
        """Run the steps on a fresh prefix. `sides`: the side of each role. Raises KeyboardInterrupt if stopped."""
        if self.stopped.is_set():
            raise KeyboardInterrupt
        keyspace = RedisKeyspace(self.redis)
        cast = {role: self.drivers[side] for role, side in sides.items()}
        # Event readers and loops need a running clock.
        clock: ParticipantClock = RunningClock() if any(map(_runs_by_itself, steps)) else FrozenClock()
        run = _Run(cast, self.address, self.redis, keyspace, self.fresh_prefix(), clock, dict(worker_options))
        try:
            return run.outcome(steps)
        finally:
            for driver in self.drivers.values():
                driver.reset()
            keyspace.clear([run.prefix])


@dataclass
class _Run:
    cast: Mapping[str, RestartableDriver]
    address: RedisAddress
    redis: Any
    keyspace: RedisKeyspace
    prefix: str
    clock: ParticipantClock
    worker_options: dict[str, Any]
    opened: set[str] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Names of jobs by id."""
    deliveries: list[Delivery] = field(default_factory=list)
    refusals: list[RefusedCall] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    late_ms: int = 0
    number: int = 0
    """Of the current step."""

    def __post_init__(self) -> None:
        self._started = self.clock.now_ms()

    def outcome(self, steps: Sequence[FeatureStep]) -> FeatureOutcome:
        for self.number, step in enumerate(steps, start=1):
            try:
                with self._noted(step):
                    self._take(step)
            except OperationUnsupported as reason:
                return FeatureOutcome(unsupported=str(reason))
            except DriverBroken as broken:
                self._refuse(step, str(broken))
                break
        return self._seen(self._dump())

    @contextmanager
    def _noted(self, step: FeatureStep) -> Iterator[None]:
        """Note a call that the client does not make, and continue after the block."""
        try:
            yield
        except (OperationFailed, OperationIndeterminate) as failure:
            self._refuse(step, failure.error.message)

    def _refuse(self, step: FeatureStep, message: str) -> None:
        role, op = (step.handle, step.name) if isinstance(step, CallStep) else ("", "")
        self.refusals.append(RefusedCall(self.number, role, op, message))

    def _take(self, step: FeatureStep) -> None:
        match step:
            case CallStep():
                self._perform(step)
            case ClockStep(clock_ms=ms):
                self._pass(ms)
            case FaultStep() | CounterStep():
                job = self._released(step.job)
                if job is not None:
                    self.keyspace.endure([self.prefix], replace(step, job=job))
            case DrainStep():
                self._drain(step)
            case WaitStep(event=""):
                self._await(step.finished)
            case WaitStep():
                self._hear(step)

    # Calls.

    def _perform(self, step: CallStep) -> bool:
        """Make a call, on a handle that is opened if need be, and return whether it hands out a job.

        A call about the job that a worker holds is not made if it holds none.
        """
        op = step.op
        if getattr(op, "job", "").startswith(HELD):
            job = self._released(op.job)  # type: ignore[attr-defined]
            if job is None:
                return False
            op = msgspec.structs.replace(op, job=job)
        role: Role = op.role if isinstance(op, lifecycle.Open) else type(op).on  # type: ignore[assignment]
        handle = f"{step.handle}-{role}"
        if not step.opens and handle not in self.opened:
            options = self.worker_options if role == "worker" else {}
            self._perform(opening(step.handle, role, "" if role == "flow" else MAIN, **options))
        self.opened.add(handle)
        answer = (
            self.cast[step.handle]
            .living()
            .call(
                addressed(op, self.prefix, self.address),
                handle=handle,
                deadline_ms=CALL_DEADLINE_MS,
                now_ms=self.clock.call_ms(),
            )
        )
        if isinstance(op, queue.Add):
            self.names.setdefault(answer.id, op.name)
        claims = isinstance(op, worker.GetNextJob) or getattr(op, "fetch_next", False)
        return claims and self._handed(step.handle, answer.job)

    def _released(self, job: str) -> str | None:
        """The id of a job; `@worker` is the job that the worker holds, and no longer does, or None."""
        return self.held.pop(job.removeprefix(HELD), None) if job.startswith(HELD) else job

    def _handed(self, role: str, job: Any) -> bool:
        if job is None:
            return False
        self.names[job.id] = job.name
        # BullMQ's own loop fails such a job without running it.
        if reason := self.redis.hget(f"{self.prefix}:{MAIN}:{job.id}", "defa"):
            self._perform(WorkerWords(role).fail(job.id, reason.decode(), unrecoverable=True))
        else:
            self.held[role] = job.id
            self.deliveries.append(Delivery(job.name, role, self.clock.now_ms() - self._started, self.number))
        return True

    def _pass(self, ms: int) -> None:
        if ms:
            self.clock.pass_ms(ms)
            if self.clock.frozen:
                self.keyspace.endure([self.prefix], ClockStep(ms))

    def _drain(self, step: DrainStep) -> None:
        for ms in DRAIN_MS:
            self._pass(ms)
            for _ in range(LONGEST_DRAIN):
                taken = [role for role in map(WorkerWords, step.drain) if self._perform(role.claim())]
                for role in taken:
                    with self._noted(step):
                        self._perform(role.complete() if step.outcome == "complete" else role.fail())
                if not taken:
                    break

    # Loops and event readers.

    def _await(self, finished: int) -> None:
        began = time.monotonic()
        over = 0
        while over < finished and (time.monotonic() - began) * 1000 < LONGEST_WORK_MS:
            time.sleep(_POLL_S)
            over = sum(event.name in {"completed", "failed"} for event in self._dump().snapshot.events)
        waited = round((time.monotonic() - began) * 1000)
        self.late_ms = max(self.late_ms, waited if waited > LOOP_LATE_MS else 0)

    def _hear(self, step: WaitStep) -> None:
        driver = self.cast[step.on].living()
        try:
            driver.wait_event(
                f"{step.on}-events",
                names={"queue-event"},
                deadline_ms=LONGEST_NEWS_MS,
                where=lambda event: event.args.get("name") == step.event,
            )
        except EventTimeout:
            self.unheard.append(step.event)

    # The outcome.

    def _dump(self) -> StateDump:
        return self.keyspace.dump(self.prefix)[0]

    def _seen(self, dump: StateDump) -> FeatureOutcome:
        snapshot = dump.snapshot
        self.names |= {job.id: job.fields.get("name", job.id) for job in snapshot.jobs}
        # Jobs of a loop are not seen in answers.
        started = [event.job for event in snapshot.events if event.name == "active" and event.job]
        loops = [Delivery(self.names.get(job, job), "", self.late_ms) for job in started if not self.clock.frozen]
        findings = check_handover(snapshot, removals=True, who="")
        return FeatureOutcome(
            deliveries=(*self.deliveries, *loops),
            refusals=tuple(self.refusals),
            left=tuple(self._left(dump)),
            waits=frozenset(self._ahead(snapshot)),
            lost=tuple(finding.actual for finding in findings if finding.where == LOST),
            twice=tuple(finding.actual for finding in findings if finding.where == TWICE),
            unheard=tuple(self.unheard),
        )

    def _left(self, dump: StateDump) -> Iterator[str]:
        """The keys that may hold jobs, with the names of those in a list or a set."""
        base = f"{self.prefix}:{MAIN}:"
        jobs = {job.id for job in dump.snapshot.jobs}
        for key, kind, _, value in dump.reply[1]:
            place = key.decode("utf-8", "replace").removeprefix(base)
            if place in PASSING or place.partition(":")[0] in jobs or place.startswith("metrics:"):
                continue
            members = value if kind in {b"list", b"set"} else value[0::2] if kind == b"zset" else []
            texts = [member.decode("utf-8", "replace") for member in members]
            yield f"{place}: {' '.join(self.names.get(text, text) for text in texts)}".rstrip(": ")

    def _ahead(self, snapshot: Snapshot) -> Iterator[str]:
        """Names of the jobs whose time will come: delayed ones, and all that wait for the end of a rate limit."""
        limited = any(isinstance(limiter.ttl_ms, int) and limiter.ttl_ms > 0 for limiter in snapshot.limiters)
        for member in snapshot.memberships:
            delayed = member.container == "delayed" and float(member.score or 0) / SCORES_PER_MS > self.clock.now_ms()
            if delayed or (limited and member.container in {"wait", "prioritized"}):
                yield self.names.get(member.job, member.job)


def _runs_by_itself(step: FeatureStep) -> bool:
    """Whether the step opens an event reader or a worker with a loop."""
    op = step.op if isinstance(step, CallStep) else None
    return isinstance(op, lifecycle.Open) and (op.role == "events" or op.processor not in {None, "manual"})
