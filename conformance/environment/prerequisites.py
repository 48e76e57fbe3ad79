"""Prerequisites that a run requires: a missing one fails the run instead of skipping scenarios silently."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable

from conformance.problems import EnvironmentProblem, UsageProblem

OLDEST_JAVA = 17
TIMEOUT_S = 30


def insist(names: Iterable[str], *, node: str = "") -> None:
    """Raises EnvironmentProblem for the first missing prerequisite, UsageProblem for an unknown name."""
    for name in names:
        if name not in CHECKS:
            known = ", ".join(sorted(CHECKS))
            raise UsageProblem(f"unknown prerequisite {name!r} in --require", hint=f"use {known}")
        missing = CHECKS[name](node)
        if missing:
            raise EnvironmentProblem(f"the required {name} is missing: {missing}", hint=HINTS[name])


def required_names(text: str) -> list[str]:
    """The names in a comma-separated list, and those of the variable `REQUIRE_VARIABLE`."""
    listed = f"{text},{os.environ.get(REQUIRE_VARIABLE, '')}".split(",")
    return list(dict.fromkeys(name.strip() for name in listed if name.strip()))


def _docker(_: str) -> str:
    return _fails(["docker", "version", "--format", "{{.Server.Version}}"])


def _java(_: str) -> str:
    command = ["java", "-version"]
    if problem := _fails(command):
        return problem
    version = re.search(r'version "(\d+)', _output(command))
    return "" if version and int(version[1]) >= OLDEST_JAVA else f"Java {OLDEST_JAVA} or newer is needed"


def _go(_: str) -> str:
    return _fails(["go", "version"])


def _rust(_: str) -> str:
    return _fails(["cargo", "--version"])


def _node(setting: str) -> str:
    return _fails([setting or "node", "--version"])


def _fails(command: list[str]) -> str:
    # Asked first, so that a missing program and a failing one have different messages.
    if shutil.which(command[0]) is None:
        return f"there is no program {command[0]}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` did not answer within {TIMEOUT_S} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    return done.stdout + done.stderr


CHECKS: dict[str, Callable[[str], str]] = {
    "docker": _docker,
    "go": _go,
    "java": _java,
    "node": _node,
    "rust": _rust,
}
"""Checks by prerequisite. Each returns what is missing as a text, or an empty text."""

HINTS = {
    "go": "install Go",
    "docker": "install Docker and start its engine",
    "java": f"install a JDK {OLDEST_JAVA} or newer",
    "node": "install Node.js 18 or newer, or name it with --node",
    "rust": "install Rust, for example with rustup",
}


REQUIRE_VARIABLE = "BULLMQ_CONFORMANCE_REQUIRE"
"""Environment variable with required prerequisites, separated by commas. CI sets it."""
