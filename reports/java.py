"""Which Java runs Spark: found and judged before Spark is, because Spark's own complaint is a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from conformance.problems import EnvironmentProblem

OLDEST_JAVA = 17
"""Spark 4 runs on Java 17 and newer (Spark documentation, "Overview")."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_S = 30


def insist_on_java() -> int:
    """Answer the major version of the Java that Spark will start.

    Raises EnvironmentProblem where there is none, where it does not answer, or where it is older than OLDEST_JAVA.
    """
    java = find_java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{java} cannot be started: {error}", hint=_hint()) from error
    said = done.stderr or done.stdout
    found = _VERSION.search(said)
    if found is None:
        raise EnvironmentProblem(f"{java} does not tell its version: {said.strip()[:200]}", hint=_hint())
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
