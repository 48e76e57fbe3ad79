"""Every finding of the kit has an owner: a row that owns its place, or what was done."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from fnmatch import fnmatchcase
from types import ModuleType

import pytest

from conformance.checkers import queues, snapshot_checks, traffic
from conformance.checkers.base import InvariantCheck, SnapshotView
from conformance.gate import judge
from conformance.gate.attribution import BY_DOING
from conformance.ledger.loader import load_ledger
from conformance.observe import compare_jobs, diff
from conformance.protocol.states import LIST_CONTAINERS, STATE_CONTAINERS, ZSET_CONTAINERS

FIRST_WORDS = frozenset(
    {
        *("counter", "dedup", "dependency", "event", "expiry", "job", "limiter", "lock", "log", "marker", "membership"),
        *("meta", "metrics", "scheduler", "stalled-check", "unknown"),
    }
)
"""Every locator of a difference, or of a broken invariant, starts with one of these."""

HOLE = "{}"


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts in some code, with HOLE wherever something is put in."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def is_locator(text: str) -> bool:
    words = text.split(".")
    return words[0] in FIRST_WORDS and " " not in text and ":" not in text and text != f"event.{HOLE}{HOLE}"


def filled(locator: str) -> list[str]:
    """A locator with every text that may fill its holes, as far as that matters."""
    if locator.startswith("membership."):
        among = {".order": LIST_CONTAINERS, ".score": ZSET_CONTAINERS}
        ending = next((containers for end, containers in among.items() if locator.endswith(end)), STATE_CONTAINERS)
        return [locator.replace(HOLE, container) for container in ending]
    if locator.startswith("counter."):
        return [locator.replace(HOLE, name) for name in ("id", "pc")]
    if locator.startswith("dependency."):
        kinds = ("pending", "processed", "failed", "unsuccessful")
        return [locator.replace(HOLE, kind) for kind in kinds]
    return [locator.replace(HOLE, "something")]


def locators(*modules: ModuleType) -> list[str]:
    found = {text for module in modules for text in texts(ast.parse(inspect.getsource(module))) if is_locator(text)}
    return sorted({place for locator in found for place in filled(locator)})


DIFFERENCES = locators(diff, compare_jobs)
EVENTS = [
    f"event.{name}{rest}" for name in (*queues.SHAPES, "custom") for rest in ("", ".jobId", ".field-order", ".id")
]
FIELDS = [
    *("job.something", "job.data.text", "meta.paused", "scheduler.something", "metrics.completed.count"),
    *("dependency.pending.score", "dependency.failed.score", "metrics.failed.data"),
    *("limiter", "limiter.ttl", "stalled-check", "stalled-check.ttl"),
]
"""Places whose first word is put in."""


def answered(where: str) -> bool:
    """Whether a row owns the place, or it is known that the doing decides."""
    return load_ledger().owner_of(where) is not None or any(fnmatchcase(where, pattern) for pattern in BY_DOING)


def test_the_walk_finds_what_there_is() -> None:
    assert {
        *("job", "lock", "lock.left", "lock.ttl", "log", "meta", "dedup.ttl", "scheduler.next", "membership.stalled"),
        *("membership.wait.order", "membership.failed.score", "dependency.pending", "marker.other", "counter.pc"),
        *("event.order", "membership.ghost", "membership.state", "unknown.something", "expiry.something"),
    } <= set(DIFFERENCES)
    assert not answered("membership.nowhere"), "the walk notices locators that no row answers for"


@pytest.mark.parametrize(
    "where", [*DIFFERENCES, *EVENTS, "limiter", "limiter.ttl", "stalled-check", "stalled-check.ttl"]
)
def test_every_difference_has_an_owner(where: str) -> None:
    assert answered(where)


@pytest.mark.parametrize("check", snapshot_checks.ALL_CHECKS, ids=lambda check: check.name)
def test_a_row_owns_every_invariant_or_the_places_where_it_is_broken(check: InvariantCheck[SnapshotView]) -> None:
    ledger = load_ledger()
    if ledger.owner_of(f"invariant.{check.name}") is None:
        assert [place for place in places_of(check) if ledger.owner_of(place) is None] == []


def places_of(check: InvariantCheck[SnapshotView]) -> list[str]:
    """The places at which a check can be broken; those in the event stream are made by a helper."""
    tree = ast.parse(inspect.getsource(check.predicate))
    if any(isinstance(node, ast.Name) and node.id == "_found" for node in ast.walk(tree)):
        return EVENTS
    given = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "where"]
    assert given, f"{check.name} does not say where it is broken"
    # A name is a place that a loop goes through: its texts are in the same function.
    chosen = given if not any(isinstance(node, ast.Name) for node in given) else [tree]
    return sorted({place for node in chosen for text in texts(node) if is_locator(text) for place in filled(text)})


@pytest.mark.parametrize("check", traffic.ALL_CHECKS, ids=lambda check: check.name)
def test_a_row_owns_every_check_of_traffic(check: traffic.TrafficCheck) -> None:
    assert load_ledger().owner_of(f"traffic.{check.name}.addStandardJob") is not None


@pytest.mark.parametrize("part", ["getters", "ghosts", "queue-events"])
def test_a_row_owns_what_node_cannot_read(part: str) -> None:
    assert f'"{part}"' in inspect.getsource(judge)
    assert load_ledger().owner_of(f"oracle.{part}") is not None
