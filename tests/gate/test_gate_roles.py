"""Assignment of roles: every assignment, those that are run in core, and more roles than can be run exhaustively."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from conformance.participants.roles import ROLES, Assignment, assignments, unsupported_role

NAMES = tuple(ROLES)


@pytest.mark.parametrize(("roles", "ways"), [(2, 2), (3, 6), (4, 14), (5, 30)])
def test_every_assignment_occurs_once_and_involves_several_clients(roles: int, ways: int) -> None:
    every = assignments(NAMES[:roles])
    assert len({str(assignment) for assignment in every}) == len(every) == ways
    for assignment in every:
        assert sorted((*assignment.client, *assignment.partner)) == sorted(NAMES[:roles])
        assert assignment.client
        assert assignment.partner


@pytest.mark.parametrize("roles", range(2, len(NAMES)))
def test_in_core_each_client_takes_each_role_once_and_neighbours_differ(roles: int) -> None:
    first, second = [assignment for assignment in assignments(NAMES[:roles]) if assignment.in_core]
    assert (first.client, first.partner) == (second.partner, second.client)
    assert all((name in first.client) != (other in first.client) for name, other in pairwise(NAMES[:roles]))


@pytest.mark.parametrize("roles", range(6, 9))
def test_of_many_roles_every_two_meet_in_every_way(roles: int) -> None:
    shares = [{*assignment.client} for assignment in assignments(NAMES[:roles])]
    assert len(shares) < 2**roles - 2
    for name, other in combinations(NAMES[:roles], 2):
        assert {(name in share, other in share) for share in shares} == {
            (False, False),
            (False, True),
            (True, False),
            (True, True),
        }


def test_an_assignment_is_read_by_people() -> None:
    assignment = Assignment(("pauser", "adder", "worker"), ("resumer",))
    assert str(assignment) == "client=pauser+adder+worker"
    assert assignment.sentence == "the client pauses, adds and works, its partner resumes"


def test_a_role_takes_one_of_its_operations() -> None:
    assert not unsupported_role(("adder", "worker"), {"flow.add", "manual-worker"}, "the client")
    assert not unsupported_role(("listener",), (), "the client")
    said = unsupported_role(("adder", "pauser"), {"queue.add"}, "the client")
    assert said == "the client cannot be the pauser: its driver does not declare queue.pause"
