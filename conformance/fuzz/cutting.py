"""Calls whose connection breaks at an exact moment: what may have come of them, and how that is told.

Only the client is cut. Whether the oracle makes the call as well follows from what the client's call has come to: a
call of which nobody knows whether it happened must have happened at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from conformance.fuzz.comparing import answer_differences
from conformance.fuzz.findings import StepDifference
from conformance.fuzz.steps import CallStep
from conformance.observe.tap.records import CommandRecord
from conformance.observe.tap.rules import Cut, Phase, Trigger
from conformance.observe.tap.tap import Tap

if TYPE_CHECKING:
    from conformance.fuzz.answers import Answer
    from conformance.fuzz.play import Play

CUTTABLE = frozenset(
    {
        "queue.add",
        "queue.pause",
        "queue.resume",
        "job.updateData",
        "job.updateProgress",
        "job.promote",
        "job.changeDelay",
        "job.changePriority",
        "job.retry",
        "worker.moveToCompleted",
        "worker.moveToDelayed",
        "worker.moveToWait",
        "worker.extendLock",
    }
)
"""Operations that do all they do in one script. What a claim hands out when its reply is lost, nobody holds: such calls
(`worker.getNextJob`, `fetch_next`) are left to scenarios and to chaos."""


class Cutter(Protocol):
    """Cuts the client's connections."""

    def at_script(self, phase: Phase) -> AbstractContextManager[Callable[[], bool]]:
        """Inside the block, the connection of the next script call breaks; says whether it has."""
        ...


@dataclass(frozen=True)
class TapCutter:
    """Cuts at the tap."""

    tap: Tap

    @contextmanager
    def at_script(self, phase: Phase) -> Iterator[Callable[[], bool]]:
        """Inside the block, the connection of the next script call breaks; says whether it has."""
        with self.tap.when(Trigger(where=_is_script, phase=phase), Cut()) as barrier:
            yield lambda: bool(barrier.reached.commands)


def _is_script(command: CommandRecord) -> bool:
    return command.digest is not None


def may_be_cut(step: CallStep) -> bool:
    """Whether it is known what may come of this call when its connection breaks."""
    return step.by == "client" and step.name in CUTTABLE and not getattr(step.op, "fetch_next", False)


def cut_call(play: Play, step: CallStep, phase: Phase, cutter: Cutter) -> list[StepDifference]:
    """Make the call, cut off; what the answers show. The play compares the states afterwards."""
    now_ms = play.clock.call_ms()
    plain = replace(step, cut="")
    with cutter.at_script(phase) as was_cut:
        ours = play.actual.perform(plain, now_ms)
        cut = was_cut()
    undecided = cut and ours.status == "info"
    if undecided and phase == "before-send":
        before = play.differences
        if not play.new_differences(step):
            return []  # it did not happen, and nobody says that it did
        play.differences, play.seen = before, None  # the next look compares again
    theirs = play.expected.perform(plain, now_ms)
    if why := play.incomparable(theirs, replace(ours, status="ok") if undecided else ours):
        play.end(why)
        return []
    if phase == "before-send":
        play.last_step = "the client made the call after all"
    elif cut and not undecided and ours.status != "broken":
        # Node does so, too (chaos.node-resends): it may have happened twice.
        play.end("the client sent again what had been answered")
        return []
    return [] if undecided else _answers(play, step, theirs, ours)


def _answers(play: Play, step: CallStep, theirs: Answer, ours: Answer) -> list[StepDifference]:
    prefixes = play.expected.prefix, play.actual.prefix
    return answer_differences(step.name, theirs, ours, prefixes, frozen=play.clock.frozen)
