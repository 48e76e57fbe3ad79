"""Runs the steps of a feature with a version for each role, and records which jobs were handed out and what is left."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from conformance.driver.ops import REGISTRY, Op, lifecycle, worker
from conformance.driver.ops.lifecycle import RedisAddress, Role
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.keyspace import RedisKeyspace, StateDump
from conformance.observe.tables import Snapshot
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.steps.shapes import ClockStep, FaultStep
from conformance.versions.mixed.steps import (
    MAIN,
    Ask,
    Await,
    Claim,
    Finish,
    Hear,
    Listen,
    Loop,
    Pass,
    StalledCheck,
    Step,
    Vanish,
    WorkUntilIdle,
)

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

    def run(self, steps: Sequence[Step], sides: Mapping[str, str], worker_options: Mapping[str, Any]) -> FeatureOutcome:
        """Run the steps on a fresh prefix. `sides`: the side of each role. Raises KeyboardInterrupt if stopped."""
        if self.stopped.is_set():
            raise KeyboardInterrupt
        keyspace = RedisKeyspace(self.redis)
        cast = {role: self.drivers[side] for role, side in sides.items()}
        clock: ParticipantClock = (
            RunningClock() if any(isinstance(step, Loop | Listen) for step in steps) else FrozenClock()
        )
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
    looped: bool = False
    number: int = 0
    """Of the current step."""

    def __post_init__(self) -> None:
        self._started = self.clock.now_ms()

    def outcome(self, steps: Sequence[Step]) -> FeatureOutcome:
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
    def _noted(self, step: Step) -> Iterator[None]:
        """Note a call that the client does not make, and continue after the block."""
        try:
            yield
        except (OperationFailed, OperationIndeterminate) as failure:
            self._refuse(step, failure.error.message)

    def _refuse(self, step: Step, message: str) -> None:
        self.refusals.append(RefusedCall(self.number, getattr(step, "role", ""), getattr(step, "op", ""), message))

    def _take(self, step: Step) -> None:  # noqa: C901 - one line each
        match step:
            case Ask():
                self._ask(step)
            case Claim(role=role):
                self._claim(role)
            case Finish():
                self._finish(step)
            case Vanish(role=role):
                job = self.held.pop(role, None)
                if job is not None:
                    self.keyspace.endure([self.prefix], FaultStep("delete-lock", MAIN, job))
            case StalledCheck(role=role):
                # A check is made at most once in an interval.
                self.keyspace.endure([self.prefix], FaultStep("delete-stalled-check", MAIN))
                self._call(role, "worker", worker.CheckStalled())
            case Pass(ms=ms):
                self._pass(ms)
            case WorkUntilIdle():
                self._drain(step)
            case Loop(role=role, options=options):
                self.looped = True
                self._open(role, "worker", processor="noop", options=options)
            case Listen(role=role):
                self._open(role, "events")
            case Await():
                self._await(step)
            case Hear():
                self._hear(step)

    # Calls.

    def _call(self, role: str, kind: Role, op: Op[Any]) -> Any:
        driver = self.cast[role].living()
        options = self.worker_options if kind == "worker" else {}
        self._open(role, kind, processor="manual" if kind == "worker" else None, options=options)
        return driver.call(op, handle=f"{role}-{kind}", deadline_ms=CALL_DEADLINE_MS, now_ms=self.clock.call_ms())

    def _open(
        self, role: str, kind: Role, *, processor: lifecycle.Processor | None = None, options: Mapping[str, Any] = {}
    ) -> None:
        handle = f"{role}-{kind}"
        if handle in self.opened:
            return
        self.opened.add(handle)
        op = lifecycle.Open(
            role=kind,
            queue="" if kind == "flow" else MAIN,
            prefix=self.prefix,
            redis=self.address,
            processor=processor,
            options=dict(options),
        )
        driver = self.cast[role].living()
        driver.call(op, handle=handle, deadline_ms=CALL_DEADLINE_MS, now_ms=self.clock.call_ms())

    def _ask(self, step: Ask) -> None:
        op_type = REGISTRY[step.op]
        op = msgspec.convert(self._with_ids(step.args), op_type)
        answer = self._call(step.role, "flow" if step.op.startswith("flow.") else "queue", op)
        if step.op == "queue.add":
            self.names.setdefault(answer.id, step.args["name"])

    def _with_ids(self, value: Any) -> Any:
        if isinstance(value, str):
            found = {name: job for job, name in self._known().items()} if value.startswith("$") else {}
            return found.get(value[1:], value)
        if isinstance(value, dict):
            return {key: self._with_ids(inner) for key, inner in value.items()}
        return [self._with_ids(inner) for inner in value] if isinstance(value, list) else value

    def _known(self) -> dict[str, str]:
        """Names of all jobs by id, read from Redis."""
        stored = {job.id: job.fields.get("name", job.id) for job in self._dump().snapshot.jobs}
        self.names |= stored
        return self.names

    def _claim(self, role: str) -> bool:
        answer = self._call(role, "worker", worker.GetNextJob(token=f"{role}-token"))
        self._hand(role, answer.job)
        return answer.job is not None

    def _hand(self, role: str, job: Any) -> None:
        if job is None:
            self.held.pop(role, None)
            return
        self.names[job.id] = job.name
        # BullMQ's own loop fails such a job without running it.
        if reason := self.redis.hget(f"{self.prefix}:{MAIN}:{job.id}", "defa"):
            op = worker.MoveToFailed(job=job.id, token=f"{role}-token", message=reason.decode(), unrecoverable=True)
            self._call(role, "worker", op)
            return
        self.held[role] = job.id
        self.deliveries.append(Delivery(job.name, role, self.clock.now_ms() - self._started, self.number))

    def _finish(self, step: Finish) -> None:
        job = self.held.pop(step.role, None)
        if job is None:
            return
        token = f"{step.role}-token"
        match step.outcome:
            case "complete":
                op: Op[Any] = worker.MoveToCompleted(job=job, token=token, fetch_next=step.fetch_next)
            case "delay":
                op = worker.MoveToDelayed(job=job, token=token, timestamp=self.clock.now_ms() + step.ms)
            case "wait":
                op = worker.MoveToWait(job=job, token=token)
            case "children":
                op = worker.MoveToWaitingChildren(job=job, token=token)
            case _:
                gone = step.outcome == "unrecoverable"
                op = worker.MoveToFailed(
                    job=job, token=token, message="boom", unrecoverable=gone, fetch_next=step.fetch_next
                )
        answer = self._call(step.role, "worker", op)
        if step.fetch_next:
            self._hand(step.role, answer.job)

    def _pass(self, ms: int) -> None:
        if ms:
            self.clock.pass_ms(ms)
            if self.clock.frozen:
                self.keyspace.endure([self.prefix], ClockStep(ms))

    def _drain(self, step: WorkUntilIdle) -> None:
        for ms in DRAIN_MS:
            self._pass(ms)
            for _ in range(LONGEST_DRAIN):
                taken = [role for role in step.roles if self._claim(role)]
                for role in taken:
                    with self._noted(step):
                        self._finish(Finish(role, step.outcome))
                if not taken:
                    break

    # Loops and event readers.

    def _await(self, step: Await) -> None:
        began = time.monotonic()
        over = 0
        while over < step.finished and (time.monotonic() - began) * 1000 < step.longest_ms:
            time.sleep(_POLL_S)
            over = sum(event.name in {"completed", "failed"} for event in self._dump().snapshot.events)
        waited = round((time.monotonic() - began) * 1000)
        self.late_ms = max(self.late_ms, waited if waited > LOOP_LATE_MS else 0)

    def _hear(self, step: Hear) -> None:
        driver = self.cast[step.role].living()
        try:
            driver.wait_event(
                f"{step.role}-events",
                names={"queue-event"},
                deadline_ms=step.longest_ms,
                where=lambda event: event.args.get("name") == step.event,
            )
        except EventTimeout:
            self.unheard.append(step.event)

    # What is left.

    def _dump(self) -> StateDump:
        return self.keyspace.dump(self.prefix)[0]

    def _seen(self, dump: StateDump) -> FeatureOutcome:
        snapshot = dump.snapshot
        self.names |= {job.id: job.fields.get("name", job.id) for job in snapshot.jobs}
        # Jobs of a loop are not seen in answers.
        started = (
            [event.job for event in snapshot.events if event.name == "active" and event.job] if self.looped else []
        )
        loops = [Delivery(self.names.get(job, job), "", self.late_ms) for job in started]
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
