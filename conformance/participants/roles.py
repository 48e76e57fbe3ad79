"""The roles of a hand-over, and the ways to assign them to the two clients.

The parameters of a hand-over are its roles: `def test_x(pauser: Participant, adder: Participant, …)`. Two clients often
lose jobs in one assignment only, for example if the first pauses, the second adds and the first resumes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

MOST_ROLES_IN_FULL = 5
"""Up to this number of roles, every assignment is executed; with more, every pair of roles in every combination."""


@dataclass(frozen=True)
class HandoverRole:
    """The part of one side in a hand-over.

    `does`: the verb that reports print (`pauses`). `needs`: operations and capabilities, of which the driver must
    declare at least one; empty if any driver can take the role.
    """

    name: str
    does: str
    needs: tuple[str, ...] = ()

    def is_supported_by(self, declared: Collection[str]) -> bool:
        """Whether a client that declares these operations and capabilities can take the role."""
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
"""Every role by the name of its parameter. To add a role, add a line above."""


@dataclass(frozen=True)
class Assignment:
    """The roles of each side, in the order of the scenario's parameters. `in_core`: whether tier `core` includes it."""

    client: tuple[str, ...]
    partner: tuple[str, ...]
    in_core: bool = True

    def __str__(self) -> str:
        """The part of the scenario's id: the roles of the client under test; its partner has the others."""
        return f"client={'+'.join(self.client)}"

    @property
    def sentence(self) -> str:
        """A sentence for reports: `the client pauses and adds, its partner resumes and works`."""
        return f"the client {_verbs(self.client)}, its partner {_verbs(self.partner)}"


def assignments(roles: Sequence[str]) -> tuple[Assignment, ...]:
    """Every assignment of the roles in which both clients have at least one; those of `core` first.

    In the two assignments of `core` each client has each role once, and neighbours in the list of roles go to different
    clients. So a scenario lists its roles in the order in which they use the queue.
    """
    core = tuple(roles[::2]), tuple(roles[1::2])
    every = [chosen for chosen in product((True, False), repeat=len(roles)) if len({*chosen}) > 1]
    shares = [tuple(role for role, own in zip(roles, chosen, strict=True) if own) for chosen in every]
    if len(roles) > MOST_ROLES_IN_FULL:
        shares = list(_pairwise(roles, shares, first=core))
    others = [share for share in shares if share not in core]
    return tuple(
        Assignment(share, tuple(role for role in roles if role not in share), in_core=share in core)
        for share in (*core, *others)
    )


def _pairwise(
    roles: Sequence[str], shares: Iterable[tuple[str, ...]], *, first: Iterable[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Shares, chosen greedily, until the client has both, either one and neither role of every pair."""
    met = {meeting for share in first for meeting in _meetings(roles, share)}
    left = list(shares)
    wanted = {meeting for share in left for meeting in _meetings(roles, share)}
    for _ in range(len(left)):
        if met >= wanted:
            return
        best = max(left, key=lambda share: len(_meetings(roles, share) - met))
        met |= _meetings(roles, best)
        yield best


def _meetings(roles: Sequence[str], share: tuple[str, ...]) -> set[tuple[str, bool, str, bool]]:
    return {(a, a in share, b, b in share) for a, b in combinations(roles, 2)}


def unsupported_role(roles: Sequence[str], declared: Collection[str], who: str) -> str:
    """Why a client (`who`) cannot take one of these roles, as a sentence; empty if it can take all of them."""
    closed = [ROLES[name] for name in roles if not ROLES[name].is_supported_by(declared)]
    return (
        f"{who} cannot be the {closed[0].name}: its driver does not declare {' or '.join(closed[0].needs)}"
        if closed
        else ""
    )


def _verbs(roles: Sequence[str]) -> str:
    *first, last = [ROLES[role].does for role in roles]
    return f"{', '.join(first)} and {last}" if first else last
