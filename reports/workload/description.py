"""What a load consists of, as a user writes it: YAML, or the options of `load`. No Spark."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from conformance.problems import UsageProblem

MOST_PAYLOAD = 5 * 1024 * 1024


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections; a misspelt field is refused."""


class Payload(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filling of a job's data, in bytes: between `least` and `most`; `exponential`: mostly near `least`."""

    distribution: Literal["fixed", "uniform", "exponential"] = "fixed"
    least: int = 64
    most: int = 64


class Priority(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs (0 to 1) has a priority from 1 to `levels`."""

    share: float = 0.0
    levels: int = 10


class Delay(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs is delayed, between `least` and `most` ms."""

    share: float = 0.0
    least: int = 100
    most: int = 2000


class Failures(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs fail: a share `once` fails on the first attempt only, a share `always` on every attempt."""

    once: float = 0.0
    always: float = 0.0


class Backoff(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Back-off of jobs that may be tried again; `delay` in ms."""

    type: Literal["fixed", "exponential"] = "fixed"
    delay: int = 20


class Flows(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share of the jobs are parents of so many children, in the same queue; children are extra jobs."""

    share: float = 0.0
    children: int = 3


class Retention(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many finished jobs a queue keeps; None keeps all."""

    completed: int | None = None
    failed: int | None = None


class Workload(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load. Everything about job number i follows from this description, `seed` and i.

    `rate`: jobs per second in an open loop, on a schedule that does not wait for the system; 0: as fast as possible.
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
    arrival: Literal["regular", "jittered"] = "regular"
    payload: Payload = Payload()
    priority: Priority = Priority()
    delay: Delay = Delay()
    lifo: float = 0.0
    attempts: int = 2
    backoff: Backoff = Backoff()
    failures: Failures = Failures()
    flows: Flows = Flows()
    retention: Retention = Retention()

    @property
    def queue_names(self) -> list[str]:
        """Names of the queues."""
        before, after = self.around_number
        return [f"{before}{number}{after}" for number in range(self.queues)]

    @property
    def around_number(self) -> tuple[str, str]:
        """What stands before and after the number in the name of a queue."""
        return (f"{{{self.name}-", "}") if self.tagged else (f"{self.name}-", "")

    @property
    def digest(self) -> str:
        """The first 12 hex digits of a SHA-256 over the description: tells two loads apart."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]


def read_workload(path: Path) -> Workload:
    """A description from a YAML file. Raises UsageProblem that names the field."""
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
        return checked(msgspec.convert(found or {}, Workload))
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", hint="give a YAML file") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageProblem(f"{path}: {error}", hint="docs/spark.md has all fields") from error


def checked(workload: Workload) -> Workload:
    """The same description. Raises UsageProblem for numbers that make no sense."""
    positive = {"jobs": workload.jobs, "queues": workload.queues, "attempts": workload.attempts}
    positive |= {"priority.levels": workload.priority.levels, "flows.children": workload.flows.children}
    for name, number in positive.items():
        if number < 1:
            raise UsageProblem(f"workload: {name} is {number}", hint="it must be 1 or more")
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
    payload, delay = workload.payload, workload.delay
    for name, least, most in (("payload", payload.least, payload.most), ("delay", delay.least, delay.most)):
        if not 0 <= least <= most:
            raise UsageProblem(f"workload: {name} goes from {least} to {most}", hint="0 <= least <= most")
    if workload.payload.most > MOST_PAYLOAD or workload.rate < 0:
        raise UsageProblem("workload: payload.most is too large, or rate is negative", hint=f"most: {MOST_PAYLOAD}")
    if ":" in workload.name or not workload.name:
        raise UsageProblem(f"workload: {workload.name!r} cannot be part of a queue's name", hint="leave out the colon")
    return workload
