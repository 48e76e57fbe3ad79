"""What breaks a run off where it stands, kept as that run's result, so that the campaign goes on."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.problems import Problem

STACK_LINES = 60
"""The last lines are kept: a driver's own stacks are at the end of its log."""

Culprit: TypeAlias = Literal["client", "kit"]

_CLIENTS_OWN = (DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported)
"""What a call raises where the client, or its driver, does not do what it was asked for."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Something that had to be done and could not be.

    `during`: the name of the fault, or the phase of the run. `culprit`: whose finding it is: the client's, whose call
    was refused or never answered, or the kit's own (Redis, the machine, a defect), which says nothing about the client.
    `stack`: where it stood, as far as it says so itself.
    """

    during: str
    culprit: Culprit
    message: str
    stack: list[str] = []

    def __str__(self) -> str:
        """In one line."""
        return f"during {self.during}: {self.message}"


class CannotRecord(Problem):
    """The disk takes no more: nothing that happens from now on could be shown, so that the campaign has to end."""


class RunErrors:
    """The troubles of one run."""

    def __init__(self) -> None:
        self.found: list[RunError] = []

    @contextmanager
    def noting(self, during: str) -> Iterator[None]:
        """Note what the block raises, and go on after it. Raises CannotRecord."""
        try:
            yield
        except CannotRecord:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is: the other faults have to be played
            self.found.append(run_error_of(error, during))


def run_error_of(error: Exception, during: str) -> RunError:
    """Whose finding an error is, and where it stood."""
    if isinstance(error, _CLIENTS_OWN):
        return RunError(during=during, culprit="client", message=_first_line(error), stack=_kept(stack_of(error)))
    if isinstance(error, Problem):
        return RunError(during=during, culprit="kit", message=_first_line(error))
    lines = "".join(traceback.format_exception(error)).splitlines()
    return RunError(
        during=during, culprit="kit", message=f"{type(error).__name__}: {_first_line(error)}", stack=_kept(lines)
    )


def stack_of(error: BaseException) -> Sequence[str]:
    """What the driver itself has said of where it stood: the end of its log, or notes that were added to the error."""
    notes = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
    return [*(error.log if isinstance(error, DriverBroken) else ()), *notes]


def _first_line(error: BaseException) -> str:
    what = error.what if isinstance(error, Problem) else str(error)
    return next(iter(what.splitlines()), type(error).__name__)


def _kept(lines: Sequence[str]) -> list[str]:
    return list(lines[-STACK_LINES:])
