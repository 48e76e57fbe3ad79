"""Scenarios that need a Redis Cluster: taken where there is one, left out and named where there is none."""

from __future__ import annotations

import pytest

from conformance.gate.options import RunConfig
from conformance.gate.plugin import GatePlugin, nothing_selected
from conformance.gate.selection import all_scenarios, is_possible, left_out
from conformance.ledger.loader import load_ledger
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range

NEEDY = {
    name: made
    for name, made in all_scenarios()
    if made.needs == "cluster" and (not made.bullmq or in_range(BULLMQ_VERSION, made.bullmq))
}


def test_there_are_such_scenarios() -> None:
    assert {name.split("/")[0] for name in NEEDY} == {"cluster"}


@pytest.mark.parametrize("redis", ["cluster", "cluster:5", "redis+cluster://a:1,b:2", "rediss+cluster://a:1"])
def test_they_are_taken_on_a_cluster(redis: str) -> None:
    config = RunConfig(redis=redis, tier="full")
    assert all(is_possible(made, config) for made in NEEDY.values())
    assert left_out(config, load_ledger()) == []


@pytest.mark.parametrize("redis", ["", "redis://a:1", "bundled", "container"])
def test_elsewhere_they_are_left_out_and_named(redis: str) -> None:
    config = RunConfig(redis=redis, tier="full")
    assert left_out(config, load_ledger()) == list(NEEDY)
    assert all(is_possible(made, config) for _, made in all_scenarios() if not made.needs)


def test_only_what_was_asked_for_is_named() -> None:
    assert left_out(RunConfig(select=["pause"]), load_ledger()) == []
    chosen = left_out(RunConfig(select=["cluster.untagged-spreads"]), load_ledger())
    assert chosen == ["cluster/keys_without_braces_are_refused"]


def test_only_missing_requirements_are_reported_with_the_remedy() -> None:
    problem = nothing_selected(RunConfig(select=["cluster.untagged-spreads"]))
    assert "no scenario of cluster.untagged-spreads can run" in str(problem)
    assert "cluster/keys_without_braces_are_refused need a Redis Cluster (--redis cluster:3)" in str(problem)


def test_a_wrong_redis_setting_is_reported_before_the_run() -> None:
    with pytest.raises(UsageProblem, match="invalid Redis setting"):
        left_out(RunConfig(redis="kluster"), load_ledger())


def test_the_header_and_the_listener_get_it() -> None:
    announced: list[str] = []
    plugin = GatePlugin(RunConfig(select=["cluster"]), [], announced.append)
    reasons = plugin._not_run()
    assert announced == [f"not run: {reasons['not run']}"]
    assert all(name in announced[0] for name in NEEDY)
    assert GatePlugin(RunConfig(select=["pause"]), [], announced.append)._not_run() == {}
