"""Base of invariant checks over a snapshot or over traffic, and their findings. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from conformance.findings import NOBODY_BLAMED, Finding, Severity
from conformance.observe.tables import Job, Membership, Snapshot
from conformance.problems import UsageProblem
from conformance.protocol.states import STATE_CONTAINERS
from conformance.registry import unknown_name

EARLIEST_MS = 1_400_000_000_000
"""Unix ms, 2014: an earlier time is in another unit, or zero."""
LATEST_MS = 4_100_000_000_000
"""Unix ms, 2099: a later time is in another unit. Wide, because participants may run on a clock set by the kit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationDetail:
    """The place, the key and the message of a violation; the check adds the rest of the finding.

    `severity`: only if it differs from that of the check. `damage`: which of several causes that the check has.
    `other`: the key of another job that it is about, such as a child. `since_ms`: since when it must have been so, Unix
    ms, if the store shows it. `number`: of the workers, jobs or schedules that it is about, with a few `examples`.
    """

    where: str
    key: str
    message: str
    severity: Severity | None = None
    damage: str = ""
    other: str = ""
    since_ms: float | None = None
    number: int = 1
    examples: tuple[str, ...] = ()


class SnapshotView:
    """A snapshot with the lookups that checks need, each built once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def jobs(self) -> dict[tuple[str, str], Job]:
        """Job hashes by queue and id."""
        return {(job.queue, job.id): job for job in self.snapshot.jobs}

    @cached_property
    def states(self) -> dict[tuple[str, str], list[str]]:
        """The containers of each id, one entry per occurrence, `stalled` aside."""
        found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for row in self.snapshot.memberships:
            if row.container in STATE_CONTAINERS:
                found[row.queue, row.job].append(row.container)
        return dict(found)

    @cached_property
    def containers(self) -> dict[tuple[str, str], list[Membership]]:
        """The rows of each container by queue and name, in their order."""
        found: defaultdict[tuple[str, str], list[Membership]] = defaultdict(list)
        for row in self.snapshot.memberships:
            found[row.queue, row.container].append(row)
        return dict(found)

    def members(self, queue: str, container: str) -> list[Membership]:
        """The rows of one container; empty if the key does not exist."""
        return self.containers.get((queue, container), [])

    def has_unfinished(self, queue: str, deduplication_id: str) -> bool:
        """Whether a job with this deduplication id has neither completed nor failed."""
        return any(
            job.queue == queue
            and job.fields.get("deid") == deduplication_id
            and self.states.get((queue, job.id), [])
            and not {"completed", "failed"}.intersection(self.states[queue, job.id])
            for job in self.snapshot.jobs
        )

    def state_of(self, job: Job) -> str | None:
        """The job's container if it is in exactly one, else None (another check reports that)."""
        states = self.states.get((job.queue, job.id), [])
        return states[0] if len(states) == 1 else None


Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck(Generic[Subject]):
    """A named rule about a snapshot. Its predicate yields the violations.

    `source`: the upstream script or file that establishes it. `doc`: the rule and its exceptions. `bullmq`: the range
    of versions for which it holds, empty for all.
    """

    name: str
    severity: Severity
    source: str
    predicate: Callable[[Subject], Iterator[ViolationDetail]] = field(repr=False)
    bullmq: str = ""

    @property
    def doc(self) -> str:
        """The rule in words."""
        return (self.predicate.__doc__ or "").strip()

    @property
    def rule(self) -> str:
        """Its first sentence, on one line."""
        return " ".join(self.doc.partition("\n\n")[0].split())

    def run(self, subject: Subject) -> Iterator[Finding]:
        """A finding for each violation, not yet assigned to a requirement."""
        return map(self.finding, self.predicate(subject))

    def finding(self, detail: ViolationDetail) -> Finding:
        """The finding of one violation. Ledger rows own whole checks: `invariant.NAME`."""
        return Finding(
            requirement=NOBODY_BLAMED,
            source="invariant",
            kind=self.name,
            severity=detail.severity or self.severity,
            where=f"invariant.{self.name}",
            key=detail.key,
            expected=self.rule,
            actual=detail.message,
            message=f"invariant {self.name}: {detail.message}",
            place=detail.where,
        )


AnyCheck = TypeVar("AnyCheck", bound=InvariantCheck[Any])


def without_switched_off(checks: Sequence[AnyCheck], switched_off: Mapping[str, str] | None) -> list[AnyCheck]:
    """The checks without those that are switched off (names and reasons).

    Raises UsageProblem for an unknown name or an empty reason.
    """
    off = switched_off or {}
    known = [check.name for check in checks]
    for name, reason in off.items():
        if name not in known:
            raise unknown_name("check", name, known)
        if not reason.strip():
            raise UsageProblem(f"the check {name!r} is switched off without a reason", hint="say why it does not apply")
    return [check for check in checks if check.name not in off]


def is_plausible_ms(number: float | None) -> bool:
    """Whether a number can be a Unix time in ms."""
    return number is not None and EARLIEST_MS <= number <= LATEST_MS


def has_chosen_timestamp(job: Job) -> bool:
    """Whether the user set the timestamp (option `timestamp`): BullMQ then stores any number."""
    return "timestamp" in job.opts and not job.is_iteration
