"""Problems of Spark in one line: no suitable Java, and the causes behind its exceptions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from conformance.problems import EnvironmentProblem, Problem

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and newer (Spark documentation, "Overview")."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 30


def require_java() -> int:
    """Return the major version of the Java that Spark will start.

    Raises EnvironmentProblem where there is none, where it prints no version, or where it is older than OLDEST_JAVA.
    """
    java = find_java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{java} cannot be started: {error}", hint=_hint()) from error
    said = done.stderr or done.stdout
    found = _VERSION.search(said)
    if found is None:
        raise EnvironmentProblem(f"{java} does not print its version: {said.strip()[:200]}", hint=_hint())
    major = int(found.group(1))
    if major < OLDEST_JAVA:
        raise EnvironmentProblem(f"{java} is Java {major}; Spark needs {OLDEST_JAVA} or newer", hint=_hint())
    return major


def find_java() -> str:
    """The program that Spark will start: JAVA_HOME counts before PATH. Raises EnvironmentProblem without one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise EnvironmentProblem(f"JAVA_HOME is {home}, but {java} does not exist", hint=_hint())
        return str(java)
    on_path = shutil.which("java")
    if on_path is None:
        raise EnvironmentProblem("no Java was found (JAVA_HOME is not set, and `java` is not on PATH)", hint=_hint())
    return on_path


def _hint() -> str:
    return f"install Java {OLDEST_JAVA} (Debian: openjdk-{OLDEST_JAVA}-jre-headless), or set JAVA_HOME to one"


MARK = "bullmq-conformance-problem:"
"""Stands before a Problem's text in an executor's traceback, so that it is found again on the driver."""

_MARKED = re.compile(re.escape(MARK) + r" (?P<what>.*?) \| (?P<hint>.*?)$", re.MULTILINE)

_CAUSES: tuple[tuple[str, str, str], ...] = (
    ("No space left on device", "the disk is full", "free some space, or give --out a folder on another disk"),
    ("OutOfMemoryError", "Spark ran out of memory", "give it more with --memory, as in --memory 4g"),
    ("MemoryError", "a Python worker of Spark ran out of memory", "free some, or use fewer cores: --master local[1]"),
    ("ExecutorLostFailure", "an executor was lost", "see its log; often it had too little memory"),
    ("Python worker exited unexpectedly", "a Python worker of Spark died", "often it had too little memory"),
    ("Answer from Java side is empty", "the JVM of Spark died", "often it had too little memory: --memory 4g"),
    ("PATH_NOT_FOUND", "a folder of the snapshot is missing", "take the snapshot again"),
    ("CANNOT_READ_FILE_FOOTER", "a Parquet file is damaged", "take the snapshot again"),
    ("FAILED_READ_FILE", "a file of the snapshot cannot be read", "take the snapshot again"),
    (
        "AWS Error",
        "S3 refused an executor, or is out of its reach",
        "has it the variables or the role that it needs?",
    ),
)
"""What Spark's message holds, what that means, and what to do."""


class ExecutorProblem(Exception):
    """A Problem on its way from an executor to the driver, inside Spark's own exception."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{MARK} {_on_one_line(problem.what)} | {_on_one_line(problem.hint)}")


def explain_spark(error: Exception) -> Problem:
    """Find the Problem behind an exception of Spark."""
    text = str(error)
    marked = _MARKED.search(text)
    if marked:
        return EnvironmentProblem(marked["what"], hint=marked["hint"])
    for sign, what, hint in _CAUSES:
        if sign in text:
            return EnvironmentProblem(f"{what}: {_line_with(text, sign)}", hint=hint)
    return EnvironmentProblem(f"Spark failed: {_last_line(text)}", hint="more is in the log of Spark")


def _on_one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def _line_with(text: str, sign: str) -> str:
    return next(line.strip() for line in text.splitlines() if sign in line)[:300]


def _last_line(text: str) -> str:
    """The error is the last line of a Python traceback, but the first line of Spark's own messages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or ["no message"])[-1 if errors else 0][:300]
