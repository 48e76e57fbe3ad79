from __future__ import annotations

from pathlib import Path

import pytest

from conformance.problems import UsageProblem
from reports.workload.description import Workload, checked, read_workload

GOOD = """
jobs: 500
seed: 7
queues: 2
rate: 100
arrival: jittered
payload: {distribution: exponential, least: 10, most: 900}
priority: {share: 0.1, levels: 3}
failures: {once: 0.1, always: 0.01}
flows: {share: 0.05, children: 2}
retention: {completed: 100}
"""


def test_a_description_is_read(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(GOOD)
    found = read_workload(path)
    assert (found.jobs, found.payload.most, found.flows.children) == (500, 900, 2)
    assert found.queue_names == ["load-0", "load-1"]
    assert found.digest != Workload(jobs=500).digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jbos: 5", "jbos"),
        ("jobs: many", "jobs"),
        ("jobs: 0", "jobs is 0"),
        ("lifo: 2", "lifo is 2"),
        ("failures: {once: 0.7, always: 0.7}", "more than 1 together"),
        ("attempts: 1\nfailures: {once: 0.1}", "second attempt"),
        ("payload: {least: 5, most: 1}", "payload goes from 5 to 1"),
        ("name: 'a:b'", "cannot be part of a queue's name"),
        ("jobs: [", "workload.yaml"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        read_workload(path)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot be read"):
        read_workload(tmp_path / "none.yaml")


def test_the_default_is_valid() -> None:
    assert checked(Workload()) == Workload()
