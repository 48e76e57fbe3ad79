"""What went wrong inside Spark, in one line: the Problem that an executor raised, or the cause that Spark names."""

from __future__ import annotations

import re

from conformance.problems import EnvironmentProblem, Problem

MARK = "bullmq-conformance-problem:"
"""Stands before a Problem's text in an executor's traceback, so that it is found again on the driver."""

_MARKED = re.compile(re.escape(MARK) + r" (?P<what>.*?) \| (?P<hint>.*?)$", re.MULTILINE)

_CAUSES: tuple[tuple[str, str, str], ...] = (
    ("No space left on device", "the disk is full", "free some space, or give --out a folder on another disk"),
    ("OutOfMemoryError", "Spark ran out of memory", "give it more with --memory, as in --memory 4g"),
    ("MemoryError", "a Python worker of Spark ran out of memory", "free some, or use fewer cores: --master local[1]"),
    ("ExecutorLostFailure", "an executor was lost", "look at its log; often it had too little memory"),
    ("Python worker exited unexpectedly", "a Python worker of Spark died", "often it had too little memory"),
    ("Answer from Java side is empty", "the JVM of Spark died", "often it had too little memory: --memory 4g"),
    ("PATH_NOT_FOUND", "a folder of the snapshot is missing", "take the snapshot again"),
    ("CANNOT_READ_FILE_FOOTER", "a Parquet file is damaged", "take the snapshot again"),
    ("FAILED_READ_FILE", "a file of the snapshot cannot be read", "take the snapshot again"),
)
"""What Spark's message holds, what that means, and what to do."""


class ExecutorProblem(Exception):
    """A Problem on its way from an executor to the driver, inside Spark's own exception."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{MARK} {_one_line(problem.what)} | {_one_line(problem.hint)}")


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


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def _line_with(text: str, sign: str) -> str:
    return next(line.strip() for line in text.splitlines() if sign in line)[:300]


def _last_line(text: str) -> str:
    """Python tracebacks end with what happened; Spark's own messages begin with it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or ["no message"])[-1 if errors else 0][:300]
