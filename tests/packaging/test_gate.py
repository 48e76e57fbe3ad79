"""The gate of `action/` in an empty folder, from the built wheel: docs/tutorial/first-gate.md, followed.

The blocks of the page are executed word for word.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from action import gate as gate_script
from action.gate import VARIABLES, GateProblem, installed, settings_of
from conformance.gate.repetition import TOO_BUSY
from tests.conftest import Missing
from tests.docs.blocks import commands_of
from tests.packaging.stranger import ROOT, TIMEOUT_S, lent_packages, without_ours

PAGE = ROOT / "docs" / "how-to" / "ci.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-gate.md"
TEST = "tests/packaging/test_gate.py"
DRIVER = Path("conformance", "driver.mjs")
BROKEN_ROW = "job.hash.name"

pytestmark = [pytest.mark.long(3), pytest.mark.xdist_group("wheel")]


@dataclass(frozen=True, kw_only=True)
class ForeignClient:
    """The folder of a user's client, and the variables with which its commands are run."""

    folder: Path
    environment: Mapping[str, str]

    def shell(self, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run commands as a CI system does: one script, which ends with its first failure."""
        return subprocess.run(
            ["sh", "-eu", "-c", commands],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def gate(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """The call of `action/gate.py` on the page about CI."""
        [block] = commands_of(PAGE, TEST)
        assert "gate.py" in block.text
        return self.shell(block.text, **variables)


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory, missing: Missing) -> ForeignClient:
    """A client whose author has followed the tutorial up to the first verdict."""
    if shutil.which("npm") is None:
        missing("node", "the client of the tutorial is installed with npm, which is not on PATH")
    folder = tmp_path_factory.mktemp("my-client")
    environment = without_ours(os.environ)
    # Only the wheel itself is installed; its dependencies are lent, because an index cannot always be reached.
    lent = lent_packages(tmp_path_factory.mktemp("lent"))
    environment |= {"KIT": str(wheel), "KIT_CHECKOUT": str(ROOT), "PYTHONPATH": str(lent), "PIP_NO_INDEX": "1"}
    # In one process: here others wait for a processor as well.
    environment |= {"BULLMQ_GATE_KIT": str(wheel), "BULLMQ_GATE_VENV": ".kit", "BULLMQ_GATE_JOBS": "1"}
    client = ForeignClient(folder=folder, environment=environment)
    for step in commands_of(TUTORIAL, TEST):
        done = client.shell(step.text)
        assert done.returncode == 0, f"{step.place} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    assert "SELECTION HOLDS" in done.stdout
    return client


@pytest.fixture
def broken(client: ForeignClient, tmp_path: Path) -> ForeignClient:
    """The same client with another job's name, and with an order for the runner in what it prints."""
    folder = tmp_path / "broken"
    shutil.copytree(client.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".kit", "report"))
    driver = folder / DRIVER
    healthy = driver.read_text("utf-8")
    broken = healthy.replace(".queue.add(args.name,", ".queue.add(`${args.name}\\n::error::owned`,")
    assert broken != healthy
    driver.write_text(broken, "utf-8")
    venv = {"BULLMQ_GATE_VENV": str(client.folder / ".kit")}
    return ForeignClient(folder=folder, environment={**client.environment, **venv})


def test_a_good_driver_passes(client: ForeignClient, tmp_path: Path) -> None:
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    done = client.gate(GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs))
    report = client.folder / "bullmq-conformance-report"
    assert not_passed(report / "run.jsonl") == [], done.stdout + done.stderr
    # On a machine that was too busy for a row the gate is honest, and says 4.
    assert (done.returncode, "CONFORMANT as producer" in done.stdout) in {(0, True), (4, False)}
    assert done.stdout.splitlines()[-1].startswith(f"gate: exit code {done.returncode}; ")
    assert "as producer" in summary.read_text("utf-8")
    assert outputs.read_text("utf-8") == f"exit-code={done.returncode}\nreport={report}\n"
    assert json.loads((report / "badge.json").read_text("utf-8"))["schemaVersion"] == 1
    assert (report / "junit.xml").is_file()
    assert "::" not in done.stdout, "orders for GitHub are for GitHub only"


def not_passed(run: Path) -> list[str]:
    """The scenarios of a run that say something against its client, or leave a question open on a calm machine."""
    records = [json.loads(line) for line in run.read_bytes().splitlines()]
    return [
        f"{record['id']}: {record['verdict']} {record['reason']}"
        for record in records
        if record["type"] == "scenario"
        and record["verdict"] not in ("pass", "unsupported")
        and not record["reason"].startswith(TOO_BUSY)
    ]


def test_a_broken_driver_fails_with_an_annotation_that_names_the_requirement(broken: ForeignClient) -> None:
    done = broken.gate(GITHUB_ACTIONS="true", BULLMQ_GATE_SELECT=BROKEN_ROW)
    assert done.returncode == 1, done.stdout + done.stderr
    annotated = [line for line in done.stdout.splitlines() if line.startswith(f"::error title={BROKEN_ROW} (MUST)::")]
    assert annotated, done.stdout
    # While the client could print, the runner ignored workflow commands.
    stopped = re.search(r"^::stop-commands::(\w{32})$", done.stdout, re.MULTILINE)
    assert stopped
    spoken, ended, after = done.stdout[stopped.end() :].partition(f"\n::{stopped[1]}::\n")
    assert ended
    assert BROKEN_ROW in spoken
    assert all(re.match(r"::(error|warning|notice) title=|gate: ", line) for line in after.splitlines())
    assert "::error::owned" not in re.findall(r"(?m)^\s*(::.*)$", after)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "exactly one client is needed"),
        ({"COMMAND": "d", "CLIENT": "node"}, "exactly one client is needed"),
        (
            {"COMMAND": "d", "PROFIL": "producer"},
            "unknown variable BULLMQ_GATE_PROFIL: choose from BULLMQ_GATE_",
        ),
        ({"COMMAND": "d 'x"}, "BULLMQ_GATE_COMMAND cannot be split into words (No closing quotation)"),
        ({"COMMAND": "d", "REDIS": "bundled", "REDIS_VERSION": "7.4"}, "exclude each other"),
        ({"COMMAND": "d", "OUT": "out\nexit-code=0"}, "BULLMQ_GATE_OUT has control characters: 'out\\nexit-code=0'"),
    ],
)
def test_a_wrong_variable_is_one_sentence(variables: dict[str, str], said: str) -> None:
    with pytest.raises(GateProblem) as caught:
        settings_of(named(variables))
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def named(variables: Mapping[str, str]) -> dict[str, str]:
    return {f"BULLMQ_GATE_{name}": value for name, value in variables.items()}


KIT_ENDING = """\
#!/bin/sh
echo 'running 3 scenarios' >&2
printf '%s\n' "$ERRORS" >&2
exit "$CODE"
"""


@pytest.mark.parametrize(
    ("code", "errors", "reason"),
    [
        (3, "error: driver `node d.mjs`: it ended (exit code 1)\nhint: run it\ndriver log: ::error::x 100%", None),
        (2, "Usage: bullmq-conformance run\n\nError: No such option: --nope", "Error: No such option: --nope"),
        (137, "Killed", "running 3 scenarios\nKilled"),
    ],
)
def test_the_reason_of_a_run_that_did_not_start_is_published(
    tmp_path: Path, code: int, errors: str, reason: str | None
) -> None:
    """With a program in the place of the kit: `installed` is the only part of the script that needs one."""
    kit = tmp_path / "kit"
    kit.write_text(KIT_ENDING)
    kit.chmod(0o755)
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    script = "import sys, pathlib; from action import gate; "
    script += "gate.installed = lambda _gate: pathlib.Path(sys.argv[1]); sys.exit(gate.main())"
    done = subprocess.run(
        ["python3", "-c", script, str(kit)],
        cwd=tmp_path,
        env={
            **without_ours(os.environ),
            **named({"COMMAND": "d", "OUT": str(tmp_path / "out")}),
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(outputs),
            "ERRORS": errors,
            "CODE": str(code),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    reason = reason or errors
    assert done.returncode == code
    assert done.stderr == f"running 3 scenarios\n{errors}\n"
    quoted = "\n".join(f"    {line}" for line in reason.splitlines())
    assert summary.read_text("utf-8") == f"**No run was completed (exit code {code}).**\n\n{quoted}\n"
    *_, annotated, last = done.stdout.splitlines()
    message = reason.replace("%", "%25").replace("\n", "%0A")
    assert annotated == f"::error title=BullMQ gate (exit code {code})::{message}"
    assert last == f"gate: exit code {code}; there is no report"
    assert f"exit-code={code}\n" in outputs.read_text("utf-8")
    assert not (tmp_path / "out").exists(), "nothing is uploaded"


def test_a_kit_that_is_nowhere_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        ["python3", str(ROOT / "action" / "gate.py")],
        cwd=tmp_path,
        env={**without_ours(os.environ), **named({"COMMAND": "d", "KIT": "gone.whl", "VENV": str(tmp_path)})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gate: BULLMQ_GATE_KIT: no wheel or checkout at ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is made for what cannot be"


@pytest.mark.parametrize("locked", [True, False])
def test_a_checkout_is_installed_from_its_lock(locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    lock = tmp_path / "requirements.lock"
    if locked:
        lock.touch()
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(gate_script, "_install", commands.append)
    kit = f"bullmq-conformance @ {tmp_path.as_uri()}"
    settings = settings_of(
        {"BULLMQ_GATE_CLIENT": "node", "BULLMQ_GATE_KIT": str(tmp_path), "BULLMQ_GATE_VENV": str(tmp_path / "venv")}
    )
    installed(settings)
    after_pip = [list(command)[6:] for command in commands[1:]]
    from_lock = [["--require-hashes", "-r", str(lock)], ["--no-deps", "--no-build-isolation", kit]]
    assert after_pip == (from_lock if locked else [[kit]])


def test_the_action_names_other_actions_by_commit(action: dict[str, Any]) -> None:
    used = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", name)] == []


def test_texts_of_a_workflow_become_words_and_nothing_else() -> None:
    gate = settings_of(
        named({"COMMAND": "node 'my driver.mjs' $(rm -rf /) ;", "PROFILE": "producer\nevents", "KNOWN": "--no-known"})
    )
    assert gate.command == ("node", "my driver.mjs", "$(rm", "-rf", "/)", ";")
    assert gate.options == ("--profile=producer", "--profile=events", "--known=--no-known")


def test_a_version_of_redis_is_a_container_and_brings_its_extra() -> None:
    gate = settings_of(named({"COMMAND": "d", "REDIS_VERSION": "7.4", "KIT": "git+https://git.example/kit@v1"}))
    assert gate.options == ("--redis=container:redis:7.4",)
    assert gate.requirement == "bullmq-conformance[chaos] @ git+https://git.example/kit@v1"


@pytest.fixture
def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    return loaded


def test_every_input_of_the_action_reaches_the_script_by_a_variable(action: dict[str, Any]) -> None:
    gate, _ = action["runs"]["steps"]
    of_action = {"PYTHON_OF_GATE"}
    assert set(gate["env"]) - of_action == VARIABLES - {"BULLMQ_GATE_VENV"}
    given = {re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) }}", value)[1] for value in gate["env"].values()}  # type: ignore[index]
    assert given == set(action["inputs"]) - {"artifact"}


def test_no_text_of_a_workflow_becomes_part_of_a_shell_command(action: dict[str, Any]) -> None:
    assert [step["run"] for step in action["runs"]["steps"] if "${{" in step.get("run", "")] == []


def test_the_page_explains_every_input_and_variable(action: dict[str, Any]) -> None:
    explained = set(re.findall(r"`([A-Za-z_-]+)`", PAGE.read_text("utf-8")))
    assert set(action["inputs"]) | VARIABLES <= explained
