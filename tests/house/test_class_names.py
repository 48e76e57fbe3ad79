"""The check of class names can fail, and lets BullMQ's own names be."""

from __future__ import annotations

from pathlib import Path

import pytest

from .class_names import PACKAGES, defined_classes, defined_twice


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in (*PACKAGES, "conformance/reference_impl"):
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
    (tmp_path / "conformance" / "tables.py").write_text(
        "class Job:\n    pass\n\nclass Row:\n    class Cell:\n        pass\n"
    )
    return tmp_path


def test_one_name_one_thing(tree: Path) -> None:
    (tree / "conformance" / "reference_impl" / "job.py").write_text("class Job:\n    pass\n")
    assert defined_twice(defined_classes(tree)) == {}


@pytest.mark.parametrize("name", ["Row", "Cell"])
def test_a_second_class_of_a_name_is_found_wherever_it_stands(tree: Path, name: str) -> None:
    (tree / "chaos" / "other.py").write_text(f"def make():\n    class {name}:\n        pass\n")
    twice = defined_twice(defined_classes(tree))
    assert twice == {name: [Path("conformance/tables.py"), Path("chaos/other.py")]}


def test_only_the_reference_client_may_repeat_a_name_of_bullmq(tree: Path) -> None:
    (tree / "reports" / "jobs.py").write_text("class Job:\n    pass\n")
    assert list(defined_twice(defined_classes(tree))) == ["Job"]
