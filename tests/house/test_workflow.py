"""The workflow, the hooks and CI's script run what the Makefile and the README say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parts import everything

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_the_jobs_run_targets_of_the_makefile() -> None:
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in WORKFLOW["jobs"].items()}
    assert commands["check"] == ["make check"]
    assert commands["test"][1:] == ["make run", "make test"]
    assert commands["test-all"] == ["make ${{ matrix.part }}"]
    parts = WORKFLOW["jobs"]["test-all"]["strategy"]["matrix"]["part"]
    assert parts == [" ".join([part.target, *part.variables]) for part in everything()]
    for target in ("check", "run", "test", "test-all"):
        assert re.search(rf"^{target}: .*## ", MAKEFILE, re.MULTILINE), target


@pytest.mark.parametrize(
    "step", [step for step in STEPS if "uses" in step], ids=lambda step: step["uses"].split("@")[0]
)
def test_actions_are_pinned_by_hash_with_their_version(step: dict[str, str]) -> None:
    assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert re.search(rf"{step['uses']} # v\d+\.\d+\.\d+$", text, re.MULTILINE)


def test_every_python_and_redis_that_is_supported_is_tested() -> None:
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [row["redis"] for row in matrix["include"]] == ["redis:6.2", "redis:7.2", "redis:8", "valkey/valkey:8"]


def test_everything_runs_every_night_and_on_demand() -> None:
    events = WORKFLOW[True]  # YAML reads `on` as a boolean
    assert {"schedule", "workflow_dispatch", "pull_request"} <= set(events)
    assert "github.event_name == 'schedule'" in WORKFLOW["jobs"]["test-all"]["if"]


def test_the_hooks_are_the_linters_of_make_check() -> None:
    recipe = re.search(r"^check: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    for line in recipe[1].replace("$(BIN)/", "").splitlines():
        program = line.split()[0]
        rule = line.rpartition("tests.house.")[2]
        assert (rule in hooks) if program == "python" else (f".venv/bin/{program}" in hooks), line


def test_ci_runs_the_commands_of_the_readme_and_what_the_commit_draws() -> None:
    script = (ROOT / ".ci/run").read_text("utf-8")
    for command in (
        "make --silent run",
        "make check",
        "make --silent test ",
        'tests.parts --commit "$(git rev-parse HEAD)"',
    ):
        assert command in script, command


@pytest.mark.parametrize("file", ["Makefile", ".ci/run", ".github/workflows/ci.yml"])
def test_no_command_depends_on_the_date(file: str) -> None:
    assert re.findall(r"\bdate [-+\"'].*", (ROOT / file).read_text("utf-8")) == []
