"""Gates a BullMQ client in any CI system: installs the kit, runs it, and publishes its reports.

    BULLMQ_GATE_COMMAND='node driver.mjs' BULLMQ_GATE_PROFILE=producer python3 action/gate.py

All settings are environment variables (`VARIABLES`, explained in docs/how-to/ci.md), so that no text of a workflow
becomes part of a shell command. This file only needs Python 3.11; it installs the kit. The exit code is that of the
gate, or 2 for a wrong variable, or 3 if the kit cannot be installed.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

WRONG_USAGE, BROKEN = 2, 3

PREFIX = "BULLMQ_GATE_"
OPTIONS = {
    "BULLMQ_GATE_CLIENT": "--client",
    "BULLMQ_GATE_WITH": "--with",
    "BULLMQ_GATE_PROFILE": "--profile",
    "BULLMQ_GATE_TIER": "--tier",
    "BULLMQ_GATE_SELECT": "--select",
    "BULLMQ_GATE_MIN_DECIDED": "--min-decided",
    "BULLMQ_GATE_KNOWN": "--known",
    "BULLMQ_GATE_REDIS": "--redis",
    "BULLMQ_GATE_ORACLE": "--oracle",
    "BULLMQ_GATE_PARTNER": "--partner",
    "BULLMQ_GATE_BUDGET": "--budget",
    "BULLMQ_GATE_JOBS": "--jobs",
}
"""Variables that are options of `bullmq-conformance run`."""
REPEATABLE = frozenset({"BULLMQ_GATE_WITH", "BULLMQ_GATE_PROFILE", "BULLMQ_GATE_SELECT"})
"""Variables with several values, separated by spaces or newlines."""
OTHERS = ("COMMAND", "KIT", "REDIS_VERSION", "OUT", "VENV")
VARIABLES = frozenset({*OPTIONS, *(f"{PREFIX}{name}" for name in OTHERS)})

PUBLISHED = ("run.jsonl", "summary.md", "annotations.txt", "junit.xml", "badge.json")
"""Files of an earlier run, which are removed so that they are not published as those of this one."""


MOST_LINES = 40
"""Lines of the kit's stderr that are kept for the reason of a failure."""
READER_TIMEOUT_S = 5


class GateProblem(Exception):
    """A problem that the author of the workflow can fix: what is wrong, where, and what to do."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Settings of the gate. `kit`: source of the kit. `extras`: optional dependencies of the kit to install."""

    kit: str
    extras: tuple[str, ...]
    options: tuple[str, ...]
    command: tuple[str, ...]
    out: Path
    venv: Path

    @property
    def requirement(self) -> str:
        """The requirement that pip installs. Raises GateProblem if the source does not exist."""
        name = f"bullmq-conformance[{','.join(self.extras)}]" if self.extras else "bullmq-conformance"
        if re.match(r"[a-z+]+://|git\+", self.kit):
            return f"{name} @ {self.kit}"
        place = Path(self.kit).resolve()
        if not (place.is_file() or (place / "pyproject.toml").is_file()):
            raise GateProblem(
                f"BULLMQ_GATE_KIT: no wheel or checkout at {place}; give the path of one, or a git+https:// address",
                WRONG_USAGE,
            )
        return f"{name} @ {place.as_uri()}"


def main() -> int:
    """Run the gate. Returns the exit code."""
    try:
        gate = settings_of(os.environ)
        program = installed(gate)
    except GateProblem as problem:
        print(f"gate: {problem}", file=sys.stderr)
        publish_failure(str(problem), problem.exit_code, os.environ)
        append(os.environ.get("GITHUB_OUTPUT", ""), f"exit-code={problem.exit_code}\n")
        return problem.exit_code
    forget_earlier_reports(gate.out)
    code, errors = run(program, gate)
    publish(gate.out, code, reason_in(errors), os.environ)
    return code


def settings_of(environment: Mapping[str, str]) -> Gate:
    """Read the variables; empty ones are ignored. Raises GateProblem for contradictions."""
    ours = {name: value.strip() for name, value in environment.items() if name.startswith(PREFIX)}
    given = {name: value for name, value in ours.items() if value}
    for name in ours:
        if name not in VARIABLES:
            raise GateProblem(f"unknown variable {name}: choose from {', '.join(sorted(VARIABLES))}", WRONG_USAGE)
    if ("BULLMQ_GATE_COMMAND" in given) == ("BULLMQ_GATE_CLIENT" in given):
        raise GateProblem(
            "exactly one client is needed: set BULLMQ_GATE_COMMAND (driver command) or BULLMQ_GATE_CLIENT (name)",
            WRONG_USAGE,
        )
    out = given.get("BULLMQ_GATE_OUT", "")
    # A newline would add outputs of its own to the step.
    if not out.isprintable():
        raise GateProblem(f"BULLMQ_GATE_OUT has control characters: {out!r}; name a folder without them", WRONG_USAGE)
    version = given.pop("BULLMQ_GATE_REDIS_VERSION", "")
    if version and "BULLMQ_GATE_REDIS" in given:
        raise GateProblem(
            "BULLMQ_GATE_REDIS and BULLMQ_GATE_REDIS_VERSION exclude each other: set one of them", WRONG_USAGE
        )
    if version:
        given["BULLMQ_GATE_REDIS"] = f"container:redis:{version}"
    in_container = given.get("BULLMQ_GATE_REDIS", "").startswith("container")
    return Gate(
        kit=given.get("BULLMQ_GATE_KIT", str(Path(__file__).resolve().parents[1])),
        extras=("chaos",) if in_container else (),
        options=tuple(_options(given)),
        command=tuple(_words("BULLMQ_GATE_COMMAND", given.get("BULLMQ_GATE_COMMAND", ""))),
        out=Path(given.get("BULLMQ_GATE_OUT", "bullmq-conformance-report")).resolve(),
        venv=Path(given.get("BULLMQ_GATE_VENV", ".bullmq-conformance-venv")).resolve(),
    )


def _options(given: Mapping[str, str]) -> Iterator[str]:
    for variable, flag in OPTIONS.items():
        value = given.get(variable, "")
        values = value.split() if variable in REPEATABLE else [value] if value else []
        for word in values:
            # In one word: a value that starts with a dash is not taken for another option.
            yield f"{flag}={word}"


def _words(variable: str, text: str) -> list[str]:
    """Split into words like a shell, without expansions. Raises GateProblem for an unclosed quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise GateProblem(
            f"{variable} cannot be split into words ({error}): quote it like a shell", WRONG_USAGE
        ) from error


def installed(gate: Gate) -> Path:
    """Install the kit into an environment of its own, and return its program. Raises GateProblem where that fails."""
    if sys.version_info < (3, 11):  # noqa: UP036 - users of an older one should read a sentence
        raise GateProblem(f"Python 3.11 or newer is needed, and this is {sys.version.split()[0]}", BROKEN)
    requirement = gate.requirement
    python = gate.venv / "bin" / "python"
    if not python.exists():
        _install([sys.executable, "-m", "venv", str(gate.venv)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = Path(gate.kit) / "requirements.lock"
    if lock.is_file():
        # Every package of a checkout has a hash; the kit itself comes last and brings nothing else.
        _install([*pip, "--require-hashes", "-r", str(lock)])
        _install([*pip, "--no-deps", "--no-build-isolation", requirement])
    else:
        _install([*pip, requirement])
    return gate.venv / "bin" / "bullmq-conformance"


def _install(command: Sequence[str]) -> None:
    """Run one step; what it prints goes to the log, where its reason is found."""
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        raise GateProblem(f"`{shlex.join(command)}` ended with exit code {code}: the lines above say why", BROKEN)


def forget_earlier_reports(out: Path) -> None:
    """Remove reports of an earlier run, so that they are not published if this run does not start."""
    for name in PUBLISHED:
        (out / name).unlink(missing_ok=True)


def run(program: Path, gate: Gate) -> tuple[int, list[str]]:
    """Run the gate; return its exit code and its last lines on stderr, which are also printed.

    Signals are passed on, so that an interrupted run cleans up.
    """
    command = [str(program), "run", *gate.options, f"--out={gate.out}"]
    command += ["--", *gate.command] if gate.command else []
    errors: deque[str] = deque(maxlen=MOST_LINES)
    with (
        commands_of_the_log_ignored(os.environ),
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as kit,
    ):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _frame: kit.send_signal(received))
        # In a thread, because a process that outlives the kit may keep the pipe open.
        reader = threading.Thread(target=_pass_on, args=(kit.stderr, errors), daemon=True)
        reader.start()
        code = kit.wait()
        reader.join(timeout=READER_TIMEOUT_S)
    return (code if code >= 0 else 128 - code), list(errors)


def _pass_on(pipe: IO[bytes], errors: deque[str]) -> None:
    """Print each line on stderr, and keep the last ones."""
    for line in pipe:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        errors.append(line.decode("utf-8", "replace").rstrip())


def reason_in(errors: Sequence[str]) -> str:
    """Return why the kit ended: its last error with everything after it, or else its last lines."""
    starts = [number for number, line in enumerate(errors) if re.match(r"error: ", line, re.IGNORECASE)]
    return "\n".join(errors[starts[-1] :] if starts else errors)


@contextmanager
def commands_of_the_log_ignored(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the runner of GitHub obey nothing that is printed meanwhile: a client under test may print what it likes."""
    if not on_github(environment):
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def publish(out: Path, code: int, reason: str, environment: Mapping[str, str]) -> None:
    """Hand the reports to GitHub: the summary of the step, annotations, outputs. Elsewhere the folder is all.

    `reason`: why the kit ended; published if there is no summary.
    """
    append(environment.get("GITHUB_OUTPUT", ""), f"exit-code={code}\nreport={out}\n")
    summary = out / "summary.md"
    if not summary.exists():
        publish_failure(reason, code, environment)
        print(f"gate: exit code {code}; there is no report", flush=True)
        return
    append(environment.get("GITHUB_STEP_SUMMARY", ""), summary.read_text("utf-8"))
    annotations = out / "annotations.txt"
    if on_github(environment) and annotations.exists():
        print(annotations.read_text("utf-8"), end="", flush=True)
    print(f"gate: exit code {code}; reports are in {out}", flush=True)


def publish_failure(reason: str, code: int, environment: Mapping[str, str]) -> None:
    """Put the reason why no run was completed into the summary of the step and one annotation."""
    shown = "".join(character for character in reason if character.isprintable() or character == "\n")
    # Indented, so that nothing in it is Markdown or HTML.
    quoted = "\n".join(f"    {line}" for line in shown.splitlines())
    append(environment.get("GITHUB_STEP_SUMMARY", ""), f"**No run was completed (exit code {code}).**\n\n{quoted}\n")
    if on_github(environment):
        message = shown.replace("%", "%25").replace("\n", "%0A")
        print(f"::error title=BullMQ gate (exit code {code})::{message}", flush=True)


def append(path: str, text: str) -> None:
    """Add to a file that the CI system named; without one, to none."""
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def on_github(environment: Mapping[str, str]) -> bool:
    """Whether a runner of GitHub Actions reads what is printed."""
    return environment.get("GITHUB_ACTIONS") == "true"


if __name__ == "__main__":
    sys.exit(main())
