"""A `run` in a separate process, for verbs that need many runs: started, ended, and its run file read."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from conformance.gate.records import Record, RunFooter, decode
from conformance.problems import EnvironmentProblem

RUN_FILE = "run.jsonl"
LOG_FILE = "log.txt"
PATIENCE_SECONDS = 30
"""Time for a terminated run to clean up."""

KIT_PARTS = ("*.py", "*.mjs", "*.yaml", "*.toml", "*.txt", "*.json", "*.jsonl")
ABOUT_RUNS = frozenset({"bugs", "report", "cli", "matrix", "permissions", "versions"})
"""Rooms that start runs or show them, and do not affect results."""

RunEnding = Literal["run", "broken", "time-out"]


@dataclass(frozen=True)
class SeparateRun:
    """How a run ended: `run` if its run file has a footer; otherwise `problem` says in one line what went wrong."""

    ended: RunEnding
    problem: str


def start_run(words: Sequence[str], folder: Path, *, within_s: float) -> SeparateRun:
    """Run `bullmq-conformance run` with these words; the run file and the output stay in the folder.

    After `within_s` seconds the process is terminated.
    """
    command = [sys.executable, "-m", "conformance", "run", "--out", str(folder), *words]
    return _how(folder, _ended(command, folder / LOG_FILE, within_s=within_s))


@dataclass(frozen=True, kw_only=True)
class StoredRuns:
    """Runs in a folder each, which are stored until the kit or their words change.

    `jobs`: processes per run, None for the default. A run is ended after `limit_s` seconds.
    """

    folder: Path
    announce: Callable[[str], None]
    jobs: int | None = None
    limit_s: float = 3600

    def records(self, title: str, words: Sequence[str], *, again: bool = False) -> list[Record]:
        """Return the records of a complete run with these words; `again` runs it even if it is stored.

        `title` names it in messages. Raises EnvironmentProblem with the run's own message if it does not end.
        """
        # The digest contains everything that can change the result, so a stored run is valid as long as it exists.
        digest = hashlib.sha256("\0".join([kit_hash(), *words]).encode()).hexdigest()[:12]
        folder = self.folder / f"{re.sub(r'[^A-Za-z0-9.@-]+', '-', title)}--{digest}"
        records = [] if again else read_records(folder)
        if records:
            self.announce(f"{title}: kept")
            return records
        # An incomplete run must not be read as a stored one.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        jobs = ["--jobs", str(self.jobs)] if self.jobs else []  # not in the digest: it changes no result
        # In front of the words, which may end with the command of a driver.
        how = start_run([*jobs, *words], folder, within_s=self.limit_s)
        if how.problem:
            raise EnvironmentProblem(f"{title}: {how.problem}", hint=f"what it printed is in {folder}")
        return read_records(folder)


def read_records(folder: Path) -> list[Record]:
    """Return the records of a complete run in a folder; empty if there is no run or it was cut."""
    try:
        records = [decode(line) for line in (folder / RUN_FILE).read_bytes().splitlines()]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return records if records and isinstance(records[-1], RunFooter) else []


@cache
def kit_hash() -> str:
    """Return the SHA-256, in hexadecimal, of all files of the kit that can affect the result of a run."""
    digest = hashlib.sha256()
    root = Path(str(files("conformance")))
    # A set, because a file may match several patterns; node_modules is installed per machine and not part of the kit.
    paths = {path for pattern in KIT_PARTS for path in root.rglob(pattern) if "node_modules" not in path.parts}
    # Sorted, because the order of a folder's files differs between machines.
    for path in sorted(paths):
        part = path.relative_to(root)
        if part.parts[0] not in ABOUT_RUNS:
            digest.update(part.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _ended(words: Sequence[str], log: Path, *, within_s: float) -> int | None:
    """Run a program with its output in a file. Returns its exit code, None if it had to be terminated."""
    with log.open("wb") as output:
        # Its own session, so that terminating it also reaches drivers and servers that it has started.
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Terminate a running program and its children: first with SIGTERM, so that it can clean up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _how(folder: Path, code: int | None) -> SeparateRun:
    if code is None:
        return SeparateRun("time-out", "it did not finish in time")
    # The footer decides, not the exit code: a run that finds failures exits with 1 and is still a complete run.
    if read_records(folder):
        return SeparateRun("run", "")
    lines = [line for line in (folder / LOG_FILE).read_text("utf-8", "replace").splitlines() if line.strip()]
    return SeparateRun("broken", lines[-1].strip() if lines else f"it ended with exit code {code}")
