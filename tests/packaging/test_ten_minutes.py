"""Following docs/tutorial/first-gate*.md finds the blocks of each page and stops at a broken one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from conformance.driver.authoring import write_skeleton
from tests.packaging.ten_minutes import (
    PAGES,
    ROOT,
    SECTIONS,
    Step,
    StepFailed,
    commands_in,
    follow,
    steps_of,
    table_of,
)

SHELL = ("sh", "-eu", "-c")
WORKFLOW = Path(".github", "workflows", "bullmq.yml")
TUTORIALS = [client for client in PAGES if client not in SECTIONS]


def steps_for(client: str, kit: str = "") -> list[Step]:
    return steps_of(PAGES[client], kit, SECTIONS.get(client, ""))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with a block of each kind."""
    path = tmp_path / "page.md"
    path.write_text(
        "# Page\n## Install\n```sh\nKIT=git+https://git.example/kit@v1\n```\n```text\nnot to be run\n```\n"
        "## Run\n```sh\necho \"node of $KIT\"\n```\n```yaml\n# ci/node.yml\nname: 'it''s $KIT'\n```\n"
    )
    return path


@pytest.mark.parametrize("client", TUTORIALS)
def test_the_page_leads_to_a_verdict_a_report_a_list_and_a_file_for_ci(client: str) -> None:
    steps = steps_for(client, "/kit.whl")
    script = "".join(step.script for step in steps)
    assert steps[0].script == "KIT=/kit.whl\n"
    for needed in (
        f"driver new {client} ",
        "driver check --",
        "--tier smoke",
        "--out report",
        "--write-known known.toml",
    ):
        assert script.count(needed) == 1, needed
    assert script.count("--known known.toml") == 1
    assert script.count(f"> {WORKFLOW}") == 1
    assert sum(step.commands for step in steps) <= 15


def test_the_section_about_go_leads_to_tests_a_verdict_and_a_file_for_ci() -> None:
    steps = steps_for("go", "file:///kit.git")
    script = "".join(step.script for step in steps)
    assert steps[0].script == "KIT=file:///kit.git\n"
    for needed in ("cp -R kit/examples/go/.", "go generate .\n", "driver check --", "--profile worker --out report"):
        assert script.count(needed) == 1, needed
    assert script.count(f"> {WORKFLOW}") == 1
    assert "BULLMQ_GATE_" not in script, "a step of another section"
    assert sum(step.commands for step in steps) <= 15


@pytest.mark.parametrize("client", TUTORIALS)
def test_the_patch_of_the_page_fits_the_skeleton(client: str, tmp_path: Path) -> None:
    write_skeleton(client, tmp_path / "conformance")
    script = "".join(step.script for step in steps_for(client))
    [patch] = re.findall(r"<<'PATCH'\n(.*?)^PATCH$", script, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["git", "apply"],
        cwd=tmp_path,
        input=patch,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = "".join(path.read_text("utf-8") for path in (tmp_path / "conformance").iterdir())
    assert "queue.add" in written


@pytest.mark.parametrize("client", PAGES)
def test_the_file_for_ci_gives_inputs_that_the_action_has(client: str, tmp_path: Path) -> None:
    [file] = [step for step in steps_for(client) if str(WORKFLOW) in step.script]
    subprocess.run([*SHELL, file.script], cwd=tmp_path, check=True)
    workflow = yaml.safe_load((tmp_path / WORKFLOW).read_text("utf-8"))
    [gate] = [step for step in workflow["jobs"]["conformance"]["steps"] if "OWNER/" in step.get("uses", "")]
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert set(gate["with"]) <= set(action["inputs"])
    assert gate["with"].get("known") == ("known.toml" if client in TUTORIALS else None)


def test_a_page_without_the_address_of_the_kit_is_an_error(page: Path) -> None:
    page.write_text(page.read_text().replace("KIT=", "LATER="))
    with pytest.raises(ValueError, match="where the kit is"):
        steps_of(page)


def test_one_shell_does_all_steps_and_each_is_timed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = follow(steps_of(page, "here"), SHELL)
    assert [step.step.place for step in done] == ["page.md:3", "page.md:10", "page.md:13"]
    assert all(step.seconds >= 0 for step in done)
    assert capfd.readouterr().out == "node of here\n"
    assert (tmp_path / "ci" / "node.yml").read_text() == "# ci/node.yml\nname: 'it''s $KIT'\n"
    assert re.search(r"all +3 commands", table_of(done))


@pytest.mark.parametrize("broken", ["false", "exit 7", "no-such-program", 'echo "$UNSET"'])
def test_a_block_that_fails_is_named_and_nothing_after_it_is_done(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.chdir(tmp_path)
    page.write_text(page.read_text().replace('echo "node of $KIT"', f"{broken}\ntouch went-on"))
    with pytest.raises(StepFailed, match=r"page\.md:10 ended with [1-9]"):
        follow(steps_of(page, "here"), SHELL)
    assert not (tmp_path / "went-on").exists()
    assert not (tmp_path / "ci").exists()


@pytest.mark.parametrize(
    ("text", "count"),
    [("ls\nls\n", 2), ("ls \\\n  -l\n", 1), ("# why\n\nls\n", 1), ("cat <<'END'\nls\nls\nEND\nls\n", 2)],
)
def test_commands_are_counted_as_a_reader_types_them(text: str, count: int) -> None:
    assert commands_in(text) == count
