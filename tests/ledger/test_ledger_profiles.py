"""Profiles: every examined requirement is in exactly one, and each names operations that its requirements use."""

from __future__ import annotations

from typing import get_args

import pytest

from conformance.driver.messages import Capability, ClientInfo, Ready
from conformance.driver.ops import REGISTRY
from conformance.gate.decidability import operations_within_reach
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import load_operations
from conformance.ledger.profiles import WORKER_EVENTS, Profile, ProfileTable, declared_names, load_profiles

FEWEST = 3
"""With fewer requirements, `CONFORMANT as` this profile alone would say nothing."""

EXAMINED = [row.id for row in load_ledger().values() if row.examined]


@pytest.mark.parametrize("requirement", EXAMINED)
def test_every_examined_requirement_is_in_one_profile(requirement: str) -> None:
    assert load_profiles().profile_of(requirement) is not None


def test_every_requirement_is_counted_once() -> None:
    by_profile = load_profiles().rows_by_profile(EXAMINED)
    assert sorted(row for rows in by_profile.values() for row in rows) == sorted(EXAMINED)


@pytest.mark.parametrize("name", load_profiles())
def test_no_profile_is_empty_and_no_pattern_is_idle(name: str) -> None:
    profile = load_profiles()[name]
    rows = load_profiles().rows_by_profile(EXAMINED)[name]
    deciding = {profile.pattern_for(row) for row in rows}
    assert deciding == set(profile.rows)


@pytest.mark.parametrize("name", load_profiles())
def test_a_profile_of_few_requirements_has_a_base(name: str) -> None:
    enough = len(load_profiles().rows_by_profile(EXAMINED)[name]) >= FEWEST
    assert enough or load_profiles()[name].base


def test_a_profile_follows_its_base() -> None:
    assert load_profiles().with_bases(["worker-events", "pause", "worker"]) == ("worker", "worker-events", "pause")


@pytest.mark.parametrize("name", load_profiles())
def test_operations_and_capabilities_of_a_profile_can_be_declared(name: str) -> None:
    profile = load_profiles()[name]
    assert set(profile.operations) <= set(REGISTRY)
    assert set(profile.capabilities) <= {*get_args(Capability), WORKER_EVENTS}


@pytest.mark.parametrize("name", load_profiles())
def test_each_requirement_is_about_something_that_its_profile_asks_for(name: str) -> None:
    """Else a client with nothing else would stay undecided. `tests/end_to_end/test_profiles.py` runs such clients."""
    asking = [load_profiles()[part] for part in load_profiles().with_bases([name])]
    ops = ["open", "close", "reset", *(operation for profile in asking for operation in profile.operations)]
    capabilities = [capability for profile in asking for capability in profile.capabilities]
    info = ClientInfo(name="c", language="go", version="1")
    reach = operations_within_reach(Ready(protocol=1, client=info, ops=ops, capabilities=capabilities))
    about = {row: load_operations().about(row) for row in load_profiles().rows_by_profile(EXAMINED)[name]}
    assert [row for row, operations in about.items() if operations and not operations & reach] == []


def test_lacking_capabilities_are_not_declared() -> None:
    assert declared_names(["a.op"], ["clock"], []) == {"a.op", "clock", WORKER_EVENTS}
    assert declared_names(["a.op"], ["clock"], [WORKER_EVENTS]) == {"a.op", "clock"}


def test_only_what_needs_nothing_is_common() -> None:
    assert [profile.name for profile in load_profiles().values() if profile.is_common] == ["wire"]


def test_the_longest_pattern_decides() -> None:
    table = ProfileTable(
        [Profile(name="all", title="", rows=("a.*",)), Profile(name="special", title="", rows=("a.b", "c.*"))]
    )
    assert [getattr(table.profile_of(row), "name", None) for row in ("a.a", "a.b", "c.d", "x.y")] == [
        "all",
        "special",
        "special",
        None,
    ]
    assert table.rows_by_profile(["a.a", "x.y"]) == {"all": ("a.a",), "special": ()}


def test_two_profiles_may_not_claim_one_requirement() -> None:
    table = ProfileTable([Profile(name="one", title="", rows=("a.*",)), Profile(name="two", title="", rows=("*.b",))])
    with pytest.raises(ValueError, match=r"a\.b belongs to more than one profile: one, two"):
        table.profile_of("a.b")


def test_missing_declarations_are_named_in_the_order_of_the_file() -> None:
    profile = Profile(name="p", title="", rows=("a.*",), operations=("x", "y"), capabilities=("z",))
    assert profile.missing(["y"]) == ("x", "z")
