"""What it takes to see a script refuse: the script, its code, and the steps up to the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.protocol.errors import DRIVER_CODES, ErrorCode

LATER_MS = 60_000
TOKEN = "token-1"


def _nothing() -> None:
    """There is nothing to mend."""


@dataclass(frozen=True)
class Attempt:
    """The call that is refused, and how to mend what had to be broken in Redis for it."""

    call: Callable[[], object]
    mend: Callable[[], None] = _nothing


Prepare = Callable[[Participant], Attempt]
Finish = Callable[[QueueHandle, WorkerHandle], object]


@dataclass(frozen=True)
class Refusal:
    """A script refuses with a code. `prepare` leads there. `told`: the error code that the driver has to answer."""

    script: str
    code: ErrorCode
    prepare: Prepare
    told: str = ""

    def __post_init__(self) -> None:
        """Most codes are told under a name of their own."""
        object.__setattr__(self, "told", self.told or DRIVER_CODES[self.code])

    def __str__(self) -> str:
        """For the id of the scenario."""
        return f"{self.script}:{self.code.name.lower().replace('_', '-')}"


def parent_of(jobs: QueueHandle, name: str) -> dict[str, str]:
    return {"id": name, "queue": jobs.redis.base[:-1]}


def claimed(client: Participant, *, children: bool = False) -> tuple[QueueHandle, WorkerHandle]:
    """Job 1 runs; it has another attempt, and if wanted a child that it can wait for."""
    jobs, runner = client.queue(), client.worker()
    jobs.add(attempts=2)
    runner.claim_one()
    if children:
        give_a_child(jobs)
    return jobs, runner


def give_a_child(jobs: QueueHandle) -> None:
    jobs.add(jobId="child", parent=parent_of(jobs, "1"))


def lose(jobs: QueueHandle, name: str) -> Callable[[], None]:
    """Delete the hash of a job, as an eviction does; answers what puts it back."""
    lost = jobs.redis.hash(name)
    jobs.redis.delete(name)

    def mend() -> None:
        for field, value in lost.items():
            jobs.redis.set_field(name, field, value)

    return mend
