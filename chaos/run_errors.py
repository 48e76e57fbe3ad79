"""Errors that end a run early. They are stored in the result of the run, and the campaign goes on."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.problems import Problem

STACK_LINES = 60
"""How many lines of a stack are stored: the last ones, because a driver dumps its stacks at the end of its log."""

Culprit: TypeAlias = Literal["client", "kit"]

_CLIENTS_OWN = (DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported)
"""Errors that a call raises if the client, or its driver, fails."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the run that failed.

    `during`: the name of the fault, or the phase of the run. `culprit`: `client` if its call was refused or never
    answered, `kit` if Redis, the machine or the kit failed, which proves nothing about the client. `stack`: the stacks
    that the culprit dumped, if any.
    """

    during: str
    culprit: Culprit
    message: str
    stack: list[str] = []

    def __str__(self) -> str:
        """In one line."""
        return f"during {self.during}: {self.message}"


class CannotRecord(Problem):
    """The disk is full. The campaign ends, because nothing further could be reported."""


class RunErrors:
    """The errors of one run."""

    def __init__(self) -> None:
        self.found: list[RunError] = []

    @contextmanager
    def noting(self, during: str) -> Iterator[None]:
        """Record what the block raises, and continue after it. Raises CannotRecord."""
        try:
            yield
        except CannotRecord:
            raise
        except Exception as error:  # noqa: BLE001 - after any error the other faults must be injected
            self.found.append(run_error_of(error, during))


def run_error_of(error: Exception, during: str) -> RunError:
    """The culprit of an error, its message, and its stack."""
    if isinstance(error, _CLIENTS_OWN):
        return RunError(during=during, culprit="client", message=_first_line(error), stack=_kept(stack_of(error)))
    if isinstance(error, Problem):
        return RunError(during=during, culprit="kit", message=_first_line(error))
    lines = "".join(traceback.format_exception(error)).splitlines()
    return RunError(
        during=during, culprit="kit", message=f"{type(error).__name__}: {_first_line(error)}", stack=_kept(lines)
    )


def stack_of(error: BaseException) -> Sequence[str]:
    """The stacks that the driver dumped: the end of its log, or notes that were added to the error."""
    notes = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    return [*(error.log if isinstance(error, DriverBroken) else ()), *notes]


def _first_line(error: BaseException) -> str:
    what = error.what if isinstance(error, Problem) else str(error)
    return next(iter(what.splitlines()), type(error).__name__)


def _kept(lines: Sequence[str]) -> list[str]:
    return list(lines[-STACK_LINES:])
