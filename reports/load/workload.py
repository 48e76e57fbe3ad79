"""The workload of a load as the user specifies it. No Spark: reports of loads read it, too."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from conformance.problems import UsageProblem
from conformance.protocol.keys import is_queue_name

MOST_PAYLOAD = 5 * 1024 * 1024


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections; a misspelt field is refused."""


class PayloadSize(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filling of a job's data, in bytes: between `least` and `most`; `exponential`: mostly near `least`."""

    distribution: Literal["fixed", "uniform", "exponential"] = "fixed"
    least: int = 64
    most: int = 64


class PriorityShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs (0 to 1) has a priority from 1 to `levels`."""

    share: float = 0.0
    levels: int = 10


class DelayShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs is delayed, between `least` and `most` ms."""

    share: float = 0.0
    least: int = 100
    most: int = 2000


class FailureShares(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs fail: a share `once` fails on the first attempt only, a share `always` on every attempt."""

    once: float = 0.0
    always: float = 0.0


class WorkloadBackoff(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Back-off of jobs that may be tried again; `delay` in ms."""

    type: Literal["fixed", "exponential"] = "fixed"
    delay: int = 20


class FlowShare(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs are parents of `children` children, in the same queue; children are extra jobs."""

    share: float = 0.0
    children: int = 3


class RampUp(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate grows evenly from `first` jobs per second to the workload's `rate`, within `seconds`."""

    first: float = 0.0
    seconds: float = 0.0


class Retention(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many finished jobs a queue keeps; None keeps all."""

    completed: int | None = None
    failed: int | None = None


class Workload(WorkloadPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load. Everything about job number i follows from this description, `seed` and i.

    `rate`: jobs per second in an open loop, on a schedule that does not wait for the system; 0: as fast as possible.
    `ramp`: how the rate comes to be what it is.
    `arrival`: `regular`, or `jittered` within each job's own slot. `lifo`: share of jobs added to the other end.
    `attempts`: for all jobs. `queues`: they are called `name-0`, `name-1`, ...; `tagged`: `{name-0}`, `{name-1}`, ...,
    which lets a cluster spread them.
    """

    jobs: int = 10_000
    seed: int = 1
    queues: int = 1
    name: str = "load"
    tagged: bool = False
    rate: float = 0.0
    ramp: RampUp = RampUp()
    arrival: Literal["regular", "jittered"] = "regular"
    payload: PayloadSize = PayloadSize()
    priority: PriorityShare = PriorityShare()
    delay: DelayShare = DelayShare()
    lifo: float = 0.0
    attempts: int = 2
    backoff: WorkloadBackoff = WorkloadBackoff()
    failures: FailureShares = FailureShares()
    flows: FlowShare = FlowShare()
    retention: Retention = Retention()

    @property
    def queue_names(self) -> list[str]:
        """Names of the queues."""
        before, after = self.around_number
        return [f"{before}{number}{after}" for number in range(self.queues)]

    @property
    def around_number(self) -> tuple[str, str]:
        """The text before and after the number in the name of a queue."""
        return (f"{{{self.name}-", "}") if self.tagged else (f"{self.name}-", "")

    @property
    def ramp_jobs(self) -> float:
        """How many jobs are due before the rate is reached."""
        return (self.ramp.first + self.rate) / 2 * self.ramp.seconds

    def due_ms(self, index: int) -> int:
        """When job number `index` is due, ms since the start of the schedule; jitter may add its own slot to it."""
        if not self.rate:
            return 0
        over = index - self.ramp_jobs
        if over >= 0:
            return int((self.ramp.seconds + over / self.rate) * 1000)
        first, growth = self.ramp.first, (self.rate - self.ramp.first) / self.ramp.seconds
        # The number of jobs due is first * t + growth * t² / 2; this is its root, in a form that bears growth 0.
        return int(2 * index / (first + math.sqrt(first * first + 2 * growth * index)) * 1000) if index else 0

    @property
    def digest(self) -> str:
        """The first 12 hex digits of a SHA-256 over the description: two loads differ in it."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]


def read_workload(path: Path) -> Workload:
    """A description from a YAML file. Raises UsageProblem that names the field."""
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
        return checked_workload(msgspec.convert(found or {}, Workload))
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", hint="give a YAML file") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageProblem(f"{path}: {error}", hint="docs/how-to/load.md has all fields") from error


def checked_workload(workload: Workload) -> Workload:
    """The same description. Raises UsageProblem for numbers that make no sense."""
    _check_counts(workload)
    _check_shares(workload)
    _check_ranges(workload)
    if not is_queue_name(workload.name):
        raise UsageProblem(f"workload: {workload.name!r} cannot be part of a queue's name", hint="leave out the colon")
    return workload


def _check_counts(workload: Workload) -> None:
    positive = {"jobs": workload.jobs, "queues": workload.queues, "attempts": workload.attempts}
    positive |= {"priority.levels": workload.priority.levels, "flows.children": workload.flows.children}
    for name, number in positive.items():
        if number < 1:
            raise UsageProblem(f"workload: {name} is {number}", hint="it must be 1 or more")


def _check_shares(workload: Workload) -> None:
    shares = {
        "priority.share": workload.priority.share,
        "delay.share": workload.delay.share,
        "lifo": workload.lifo,
        "failures.once": workload.failures.once,
        "failures.always": workload.failures.always,
        "flows.share": workload.flows.share,
    }
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise UsageProblem(f"workload: {name} is {share}", hint="a share lies between 0 and 1")
    if workload.failures.once + workload.failures.always > 1:
        raise UsageProblem("workload: failures.once and failures.always are more than 1 together", hint="lower one")
    if workload.failures.once and workload.attempts < 2:
        raise UsageProblem("workload: jobs that fail once need a second attempt", hint="set attempts to 2 or more")


def _check_ranges(workload: Workload) -> None:
    payload, delay = workload.payload, workload.delay
    for name, least, most in (("payload", payload.least, payload.most), ("delay", delay.least, delay.most)):
        if not 0 <= least <= most:
            raise UsageProblem(f"workload: {name} goes from {least} to {most}", hint="0 <= least <= most")
    if workload.payload.most > MOST_PAYLOAD or workload.rate < 0:
        raise UsageProblem("workload: payload.most is too large, or rate is negative", hint=f"most: {MOST_PAYLOAD}")
    if workload.ramp.first < 0 or workload.ramp.seconds < 0:
        raise UsageProblem("workload: ramp.first or ramp.seconds is negative", hint="both are 0 or more")
    if workload.ramp.seconds and not workload.rate:
        raise UsageProblem("workload: a ramp needs a rate to which it leads", hint="set rate, in jobs per second")
