"""The roles of a hand-over, and every way to share them out between the two clients.

A hand-over names its roles by its parameters: `def test_x(pauser: Participant, adder: Participant, …)`. What loses jobs
between two clients often does so in one assignment only: where the one pauses, the other adds and the first resumes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

MOST_ROLES_IN_FULL = 5
"""Roles of which every assignment is played; of more, every two roles meet in every way."""


@dataclass(frozen=True)
class HandoverRole:
    """What one side does in a hand-over.

    `does`: the verb that reports print (`pauses`). `needs`: operations and capabilities of a driver, one of which the
    role takes; none where any driver can play it.
    """

    name: str
    does: str
    needs: tuple[str, ...] = ()

    def is_supported_by(self, declared: Collection[str]) -> bool:
        """Whether a client with these operations and capabilities can play it."""
        return not self.needs or any(name in declared for name in self.needs)


_ALL = (
    HandoverRole("adder", "adds", ("queue.add", "queue.addBulk", "flow.add")),
    HandoverRole("latecomer", "adds later", ("queue.add", "queue.addBulk", "flow.add")),
    HandoverRole("worker", "works", ("managed-worker", "manual-worker")),
    HandoverRole("pauser", "pauses", ("queue.pause",)),
    HandoverRole("resumer", "resumes", ("queue.resume",)),
    HandoverRole("listener", "listens"),
    HandoverRole("reader", "reads", ("queue.getJob", "queue.getJobState")),
    HandoverRole("scheduler", "schedules", ("queue.upsertJobScheduler",)),
    HandoverRole("rescheduler", "changes the schedule", ("queue.upsertJobScheduler",)),
    HandoverRole("retrier", "retries", ("job.retry",)),
    HandoverRole("holder", "holds a job and goes away", ("managed-worker", "manual-worker")),
    HandoverRole("recoverer", "recovers", ("worker.checkStalled", "managed-worker")),
    HandoverRole("producer", "adds", ("queue.add", "queue.addBulk", "flow.add")),
    HandoverRole("consumer", "works", ("managed-worker", "manual-worker")),
)
ROLES: dict[str, HandoverRole] = {role.name: role for role in _ALL}
"""Every role by the name of its parameter. A new one is a line above."""


@dataclass(frozen=True)
class Assignment:
    """Who plays which roles, in the order in which the scenario names them. `in_core`: whether tier `core` plays it."""

    client: tuple[str, ...]
    partner: tuple[str, ...]
    in_core: bool = True

    def __str__(self) -> str:
        """As it stands in the scenario's id: the roles of the client under test; its partner plays the others."""
        return f"client={'+'.join(self.client)}"

    @property
    def sentence(self) -> str:
        """Who does what: `the client pauses and adds, its partner resumes and works`."""
        return f"the client {_verbs(self.client)}, its partner {_verbs(self.partner)}"


def assignments(roles: Sequence[str]) -> tuple[Assignment, ...]:
    """Every assignment of the roles in which neither client plays all of them; those of `core` first.

    In `core` each client plays each role once: neighbours in the list of roles are played by different clients, so that
    a scenario names its roles in the order in which the queue goes from hand to hand.
    """
    core = tuple(roles[::2]), tuple(roles[1::2])
    every = [chosen for chosen in product((True, False), repeat=len(roles)) if len({*chosen}) > 1]
    shares = [tuple(role for role, own in zip(roles, chosen, strict=True) if own) for chosen in every]
    if len(roles) > MOST_ROLES_IN_FULL:
        shares = list(_pairwise(roles, shares, begun_with=core))
    others = [share for share in shares if share not in core]
    return tuple(
        Assignment(share, tuple(role for role in roles if role not in share), in_core=share in core)
        for share in (*core, *others)
    )


def _pairwise(
    roles: Sequence[str], shares: Iterable[tuple[str, ...]], *, begun_with: Iterable[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """So many of the shares that every two roles meet in every way: both with the client, one of them, neither."""
    met = {meeting for share in begun_with for meeting in _meetings(roles, share)}
    left = list(shares)
    wanted = {meeting for share in left for meeting in _meetings(roles, share)}
    for _ in range(len(left)):
        if met >= wanted:
            return
        best = max(left, key=lambda share: len(_meetings(roles, share) - met))
        met |= _meetings(roles, best)
        yield best


def _meetings(roles: Sequence[str], share: tuple[str, ...]) -> set[tuple[str, bool, str, bool]]:
    return {(one, one in share, other, other in share) for one, other in combinations(roles, 2)}


def unsupported_role(roles: Sequence[str], declared: Collection[str], who: str) -> str:
    """The first of these roles that a client (`who`) declares nothing for, as a sentence; empty if it can play all."""
    closed = [ROLES[name] for name in roles if not ROLES[name].is_supported_by(declared)]
    return f"{who} cannot play the {closed[0].name}: it declares no {' or '.join(closed[0].needs)}" if closed else ""


def _verbs(roles: Sequence[str]) -> str:
    *first, last = [ROLES[role].does for role in roles]
    return f"{', '.join(first)} and {last}" if first else last
