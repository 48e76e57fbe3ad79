"""Jobs with uuids are paired by content: one that is missing or changed is one difference, and no other job's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from conformance.observe.tables import TABLES, Snapshot
from reports.diff.explanation import GENERATED, WHOLE, compare_group
from reports.diff.hidden_values import HiddenCounts
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import finished_job, settings_for

FLOWS = 4


def uuids(seed: int) -> list[str]:
    """Ids that another seed gives in another order."""
    return [str(UUID(int=(number * 7919 + seed) * 2**64 % 2**128)) for number in range(1, 40)]


def store(seed: int, late_ms: int = 0) -> dict[str, Any]:
    """Six jobs that wait, two of them alike; two that are done, with their own results; flows that differ below."""
    ids = iter(uuids(seed))
    waiting, done, mothers = ([next(ids) for _ in range(count)] for count in (6, 2, FLOWS))
    children = {mother: [next(ids), next(ids)] for mother in mothers}
    own = {"timestamp": str(ADDED + late_ms)}
    keys: dict[str, Any] = {f"q:{each}": job(data=f'{{"n":{n // 2}}}', **own) for n, each in enumerate(waiting)}
    for number, each in enumerate(done):
        keys[f"q:{each}"] = finished_job(returnvalue=str(number))
    for number, (mother, below) in enumerate(children.items()):
        keys[f"q:{mother}"] = job(name="mother", **own)
        keys[f"q:{mother}:dependencies"] = {f"p:q:{child}" for child in below}
        for order, child in enumerate(below):
            parent = f'{{"id":"{mother}","queueKey":"p:q"}}'
            data = f'{{"child":{number // 2 + order}}}'
            keys[f"q:{child}"] = job(data=data, parentKey=f"p:q:{mother}", parent=parent, **own)
    family = [child for below in children.values() for child in below]
    return {
        **keys,
        "q:wait": [*waiting, *family],
        "q:completed": Zset(dict.fromkeys(done, float(ADDED + 2000))),
        "q:waiting-children": Zset(dict.fromkeys(mothers, float(ADDED + late_ms))),
        "q:meta": {"opts.maxLenEvents": "10000"},
        "q:marker": Zset({"0": 0.0}),
        "q:events": Stream([event("waiting", jobId=each) for each in (*waiting, *family)]),
    }


def found(
    expected: Snapshot, actual: Snapshot, group: str = WHOLE, hidden: HiddenCounts | None = None, **changes: Any
) -> list[tuple[str, str]]:
    """Class and locator of every difference."""
    rows = [[(table, row) for table in TABLES for row in getattr(side, table)] for side in (expected, actual)]
    hidden = Counter() if hidden is None else hidden
    settings = settings_for(expected, actual, **changes)
    return [(row[0], row[3]) for row in compare_group(("q", group), (rows[0], rows[1]), settings, hidden)]


@pytest.mark.parametrize("group", [WHOLE, GENERATED, f"{GENERATED}-3"])
def test_two_runs_of_one_program_are_the_same_and_it_is_counted_that_their_ids_differ(group: str) -> None:
    hidden: HiddenCounts = Counter()
    assert found(snapshot(store(1)), snapshot(store(5, 300)), group, hidden) == []
    assert hidden["generated-uuids"] > 0


def test_a_copy_of_a_store_keeps_its_ids() -> None:
    changed = store(1)
    waiting = changed["q:wait"][3]
    changed[f"q:{waiting}"]["data"] = '{"n":"other"}'
    sides = [snapshot(store(1)), snapshot(changed)]
    rows = [[(table, row) for table in TABLES for row in getattr(side, table)] for side in sides]
    hidden: HiddenCounts = Counter()
    told = list(compare_group(("q", WHOLE), (rows[0], rows[1]), settings_for(*sides), hidden))
    assert [(row[0], row[6]) for row in told] == [("field", f"q:{waiting}")]
    assert hidden["generated-uuids"] == 0


def without_the_first(keys: dict[str, Any]) -> None:
    gone = keys["q:wait"].pop(0)
    del keys[f"q:{gone}"]
    keys["q:events"] = Stream([each for each in keys["q:events"] if each["jobId"] != gone])


def with_field(place: int, **fields: str) -> Callable[[dict[str, Any]], None]:
    def change(keys: dict[str, Any]) -> None:
        keys[f"q:{keys['q:wait'][place]}"].update(fields)

    return change


def swapped_children(keys: dict[str, Any]) -> None:
    """The first children of two flows that are not alike change places, as far as they know."""
    children = [keys[f"q:{keys['q:wait'][place]}"] for place in (6, 10)]
    for name in ("parent", "parentKey"):
        children[0][name], children[1][name] = children[1][name], children[0][name]


def returned_another(keys: dict[str, Any]) -> None:
    keys[f"q:{next(iter(keys['q:completed']))}"]["returnvalue"] = "17"


def failed_instead(keys: dict[str, Any]) -> None:
    done = next(iter(keys["q:completed"]))
    keys["q:failed"] = Zset({done: keys["q:completed"].pop(done)})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_the_first, ("missing", "job")),
        (with_field(0, name="changed"), ("field", "job.name")),
        (with_field(1, data='{"n":"other"}'), ("field", "job.data")),
        (with_field(2, opts='{"attempts":9}'), ("field", "job.opts.attempts")),
        (with_field(7, data='{"n":"other"}'), ("field", "job.data")),
        (returned_another, ("field", "job.returnvalue")),
        (failed_instead, ("wrong-state", "membership.state")),
    ],
)
def test_a_difference_planted_in_one_job_is_reported_of_that_job_alone(
    change: Callable[[dict[str, Any]], None], expected: tuple[str, str]
) -> None:
    changed = store(5, 300)
    change(changed)
    assert found(snapshot(store(1)), snapshot(changed)) == [expected]


def test_a_child_below_the_wrong_parent_is_found() -> None:
    changed = store(5)
    swapped_children(changed)
    assert {"member", "field"} <= {name for name, _ in found(snapshot(store(1)), snapshot(changed))}


def test_nothing_is_paired_where_the_rule_is_switched_off() -> None:
    sides = snapshot(store(1)), snapshot(store(5))
    assert {name for name, _ in found(*sides, switched_off=("generated-uuids",))} >= {"missing", "extra"}
