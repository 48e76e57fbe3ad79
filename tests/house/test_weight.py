"""A room that outgrows its ceiling is reported."""

from __future__ import annotations

from tests.house.weight import excesses, room_of

CEILINGS = {"conformance": 5, "conformance/gate": 10, "elsewhere": 3}


def test_a_file_belongs_to_its_innermost_room() -> None:
    paths = [
        "conformance/gate/plan.py",
        "conformance/gate/deep/plan.py",
        "conformance/plan.py",
        "gate/plan.py",
        "plan.py",
    ]
    rooms = ["conformance/gate", "conformance/gate", "conformance", "elsewhere", "elsewhere"]
    assert [room_of(path, CEILINGS) for path in paths] == rooms


def test_a_tree_at_its_ceilings_passes() -> None:
    assert excesses({"conformance/gate/plan.py": 10, "conformance/plan.py": 5, "plan.py": 3}, CEILINGS, 18) == []


def test_a_room_above_its_ceiling_is_named() -> None:
    [sentence] = excesses({"conformance/gate/plan.py": 11}, CEILINGS, 18)
    assert sentence.startswith("conformance/gate: 11 lines, 1 above its ceiling: remove as many")


def test_the_sum_has_a_ceiling_of_its_own() -> None:
    [sentence] = excesses({"conformance/gate/plan.py": 10}, CEILINGS, 9)
    assert sentence.startswith("the whole tree: 10 lines, 1 above")
