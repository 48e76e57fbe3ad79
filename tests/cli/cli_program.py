"""Running `bullmq-conformance`: as the installed program in a process of its own, or, faster, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import conformance
from conformance.gate.records import Record, RunFooter, RunHeader, ScenarioRecord, decode

PROGRAM = Path(sysconfig.get_path("scripts")) / "bullmq-conformance"
ROOT = Path(conformance.__file__).parents[1]
SCENARIOS = Path(conformance.__file__).parent / "scenarios"
TIMEOUT_S = 300


@dataclass(frozen=True)
class Done:
    """How a call of the program ended."""

    code: int
    out: str
    err: str

    def complains(self, code: int, *texts: str) -> bool:
        """It ended with this code, one line `error: ...`, a hint, and these texts. Fails the test otherwise."""
        shown = f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
        assert self.code == code, shown
        lines = [line for line in self.err.splitlines() if not line.startswith("driver log: ")]
        assert not any("Traceback" in line for line in [self.out, *lines]), shown
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, shown
        assert "\nhint: " in self.err, shown
        for text in texts:
            assert text in self.err, f"{text!r} is missing\n{shown}"
        return True


Program = Callable[..., Done]


def clean_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the variables that pytest, xdist and CI set for their children."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "BULLMQ_CONFORMANCE_REQUIRE")) and name not in {"CI", "PYTHONPATH"}
    }
    return {**kept, **(changes or {})}


def run_command(command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> Done:
    """Run any command to its end. Never through a shell."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean_environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_pytest(*words: str | Path, cwd: Path) -> Done:
    """Plain pytest on the scenarios, as run by a user who does not know our program."""
    return run_command([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", SCENARIOS, *words], cwd=cwd)


@dataclass(frozen=True)
class RunFile:
    """The records that a run wrote."""

    header: RunHeader
    scenarios: list[ScenarioRecord]
    footer: RunFooter | None

    @property
    def verdicts(self) -> dict[str, tuple[str, dict[str, str]]]:
        """By scenario: its verdict and those of its requirements."""
        return {record.id: (record.verdict, {**record.requirements}) for record in self.scenarios}


def read_records(out: Path) -> RunFile:
    records: list[Record] = [decode(line) for line in (out / "run.jsonl").read_bytes().splitlines()]
    header = records[0]
    assert isinstance(header, RunHeader)
    last = records[-1]
    return RunFile(
        header,
        [record for record in records if isinstance(record, ScenarioRecord)],
        last if isinstance(last, RunFooter) else None,
    )


def wait_until(condition: Callable[[], object], *, seen: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait for a condition; says what was seen when it does not hold in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s; seen: {seen()}"
        time.sleep(0.01)


def family(pid: int) -> dict[int, str]:
    """A process and its descendants: command lines by process id.

    `-ww`: without a terminal, `ps` cuts lines at 80 characters, which is less than the path of the bundled Node.
    """
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    members = {pid}
    while more := {int(own) for own, parent, *_ in rows if int(parent) in members} - members:
        members |= more
    return {int(own): " ".join(args) for own, _, *args in rows if int(own) in members}


def still_there(before: Mapping[int, str]) -> dict[int, str]:
    """Which of these processes live on: same id and same command line."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    now = {int(pid): args for pid, args in (line.split(None, 1) for line in listed.stdout.splitlines())}
    return {pid: args for pid, args in before.items() if now.get(pid) == args}
