"""The hunt for one mutant: the cases that can reach it, the likeliest first, until one of them notices it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from conformance.driver.errors import DriverBroken, HandshakeFailed
from conformance.environment.drivers import RestartableDriver
from conformance.mutants.generated.case_runner import CaseRun, CaseRunner
from conformance.mutants.generated.change import GeneratedMutant, lines_of_change
from conformance.mutants.generated.driver import UNCHANGED, launch_of
from conformance.mutants.generated.reach import CaseReach, printable
from conformance.mutants.matrix import ScenarioCase

Fate = Literal["killed", "survived", "unreached", "broken", "undecided"]


class HuntedMutant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the hunt for a mutant.

    `fate`: a case noticed; no case did; no case reaches it, or `passed` do so on the healthy client only, and not on
    the mutant; its driver does not start; the machine was too busy for any case to decide. `case`, `requirement`,
    `message`: the case that noticed it, and its finding; only a warning if `warns`. `played`: how
    many cases were run. `took_s`: how long that took (s). `passed`: how many of the cases that `reach` it noticed
    nothing. `problems`: cases in which the kit or the oracle broke.
    """

    key: str
    fate: Fate
    case: str = ""
    requirement: str = ""
    message: str = ""
    warns: bool = False
    played: int = 0
    took_s: float = 0.0
    passed: int = 0
    reach: int = 0
    problems: list[str] = []


class HuntedCase(msgspec.Struct, frozen=True):
    """The result of one case on a mutant. `requirement` is empty if the case noticed nothing.

    `arrived`: whether the changed code had run by then, in this case or before.
    """

    case: str
    requirement: str = ""
    message: str = ""
    warns: bool = False
    arrived: bool = True

    @property
    def names_the_row(self) -> bool:
        """Whether it noticed the rule that is broken, not only a general one that many mutants violate."""
        return bool(self.requirement) and not self.requirement.startswith(_GENERAL)


_GENERAL = ("script.", "edge.", "eviction.")
"""General rows, about all commands, odd values and missing keys: many mutants violate them as well."""
_FOR_THE_NAME = 12
"""Further cases to run for the broken rule itself, if only a general one is known to be violated."""


def telling(sayings: Iterable[HuntedCase]) -> HuntedCase | None:
    """The case that names best what is broken; None if no case noticed anything."""
    noticed = [case for case in sayings if case.requirement]
    return next((case for case in noticed if case.names_the_row), noticed[0] if noticed else None)


class Kill(msgspec.Struct, frozen=True):
    """A case noticed a mutant; `near` are the neighbourhoods of the mutant, the closest first."""

    case: str
    near: tuple[str, ...]


class Likelihood:
    """Which cases have noticed mutants so far, near a place; `kills` of earlier runs only say what to try first."""

    def __init__(self, kills: Iterable[Kill] = ()) -> None:
        self._near: dict[str, Counter[str]] = {}
        for kill in kills:
            self._learn(kill)

    def note(self, mutant: GeneratedMutant, case: str) -> Kill:
        """This case noticed this mutant."""
        kill = Kill(case, _neighbourhoods(mutant))
        self._learn(kill)
        return kill

    def _learn(self, kill: Kill) -> None:
        for where in kill.near:
            self._near.setdefault(where, Counter())[kill.case] += 1

    def ordered(self, mutant: GeneratedMutant, reaches: Iterable[CaseReach], text: bytes) -> list[CaseReach]:
        """Those that noticed neighbours first, then those that speak of the same, the quickest of every area first.

        `text`: what the mutant changes.
        """
        words = stems(f"{mutant.function} {' '.join(lines_of_change(text, mutant.edit)[0])}")
        near = [self._near.get(where, Counter()) for where in _neighbourhoods(mutant)]
        # The quickest first, so that a mutant that many cases notice is killed soon.
        by_time = sorted(reaches, key=lambda reach: reach.took_ms)
        # By turns of areas, because neighbouring cases test the same thing.
        spread = _by_turns(_by_turns(by_time, lambda reach: reach.case.partition("[")[0]), _area)
        return sorted(
            spread,
            key=lambda reach: (*(-counts[reach.case] for counts in near), -len(words & stems(reach.case))),
        )


_STEM = 4
"""Letters that names must share: `closeAll` and `closing_meets_a_fetch` are then about the same."""
_WORD = re.compile(r"[A-Z]?[a-z]+")
_EVERYWHERE = frozenset({"job", "jobs", "queue", "key", "keys"})


def stems(text: str) -> set[str]:
    """The stems of the words in names of functions and of cases, in small letters."""
    words = {word.lower() for word in _WORD.findall(text)}
    return {word[:_STEM] for word in words - _EVERYWHERE if len(word) > 3}


def _area(reach: CaseReach) -> str:
    return reach.case.partition("/")[0]


def _by_turns(reaches: Sequence[CaseReach], group_of: Callable[[CaseReach], str]) -> list[CaseReach]:
    """The first of each group, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    turns = []
    for reach in reaches:
        turns.append(seen[group_of(reach)])
        seen[group_of(reach)] += 1
    return [reach for _, reach in sorted(zip(turns, reaches, strict=True), key=lambda pair: pair[0])]


def _neighbourhoods(mutant: GeneratedMutant) -> tuple[str, ...]:
    """From the closest to the widest."""
    function = f"{mutant.language} {mutant.function}"
    return (f"{mutant.file} {mutant.line}", f"{mutant.file} {function}", function, mutant.file)


class Hunter:
    """Hunts mutants with one case runner. `folder`: for temporary files; the caller removes it."""

    def __init__(
        self, runner: CaseRunner, cases: Mapping[str, ScenarioCase], is_over: Callable[[], bool], folder: str
    ) -> None:
        self._runner, self._cases, self._is_over, self._folder = runner, cases, is_over, folder
        self._healthy = RestartableDriver(launch_of(UNCHANGED), 0)
        self._fair: set[str] = set()

    def close(self) -> None:
        """End the healthy client."""
        self._healthy.close()

    def hunt(self, mutant: GeneratedMutant, names: Sequence[str]) -> tuple[list[HuntedCase], str, list[str]]:
        """Run the cases until one notices the mutant.

        Returns the result of each case, why the driver does not start (or ''), and what broke in the kit. If the first
        finding is of a general rule, a few more cases are run for the rule that is broken.
        """
        # State of the mutant before may break this one's cases.
        self._runner.forget()
        said: list[HuntedCase] = []
        problems: list[str] = []
        with TemporaryDirectory(dir=self._folder) as folder:
            arrived = Path(folder) / "arrived"
            client = RestartableDriver(launch_of(mutant, arrived), 0)
            try:
                if not self._starts(client):
                    return said, "", [f"{mutant.key}: on this machine not even the healthy client starts"]
                # A generator, because each result decides whether another case is needed.
                for name in self._cases_to_run(names, said):
                    case = _said(name, self._judged(name, client), has_arrived=arrived.exists())
                    if isinstance(case, str):
                        problems.append(case)
                        continue
                    said.append(case)
            except DriverBroken as broken:
                return said, str(broken), problems
            finally:
                client.close()
        return said, "", problems

    def _cases_to_run(self, names: Sequence[str], said: Sequence[HuntedCase]) -> Iterator[str]:
        """One case after the other, until the results (`said`, which grows meanwhile) name what is broken."""
        left = len(names)
        for name in names:
            best = telling(said)
            if best is not None:
                # A general rule is noticed by many mutants; a few more cases may name the broken one.
                left = 0 if best.names_the_row else min(left, _FOR_THE_NAME)
            if left <= 0 or self._is_over():
                return
            left -= 1
            yield name

    def _starts(self, client: RestartableDriver) -> bool:
        """Start a client. Returns False on a machine too busy to start any; raises DriverBroken otherwise."""
        try:
            client.living()
        # The healthy client is the control: if it does not start either, the machine is too busy.
        except HandshakeFailed:
            try:
                self._healthy.living()
            except HandshakeFailed:
                return False
            # The healthy client starts, so the machine has recovered, and the mutant gets a second try.
            client.living()
        return True

    def _judged(self, name: str, client: RestartableDriver) -> CaseRun:
        """Run a case. A finding counts if the healthy client passes; on a busy machine also a second run must agree."""
        case = self._cases[name]
        run = self._runner.run(case, client)
        if not run.noticed:
            return run
        # Once per case on a quiet machine: a healthy client that passes does not have to be run again.
        if run.starved or name not in self._fair:
            control = self._runner.run(case, self._healthy)
            if control.noticed or control.error:
                return _undecided(run, control)
            self._fair.add(name)
        if not run.starved:
            return run
        # On a starved machine one finding is not enough, because starvation may have caused it.
        again = self._runner.run(case, client)
        # The same requirement, because two different findings rather speak for the machine.
        return again if _agree(run, again) else _undecided(again, again)


def _agree(one: CaseRun, other: CaseRun) -> bool:
    return (
        one.against is not None and other.against is not None and one.against.requirement == other.against.requirement
    )


def _undecided(run: CaseRun, control: CaseRun) -> CaseRun:
    seen = control.against.message if control.against else control.error
    why = "the machine was too busy to judge" if control.starved else f"the healthy client does not pass: {seen}"
    return CaseRun(None, "pass", why, starved=control.starved, took_ms=run.took_ms)


def _said(name: str, run: CaseRun, *, has_arrived: bool) -> HuntedCase | str:
    """The result of a case on a mutant, or why there is none."""
    if run.error:
        return f"{name}: {run.error}"
    if run.against is None:
        return HuntedCase(name, arrived=has_arrived)
    message = printable(run.against.message)
    # Without the changed code nothing can be the mutant's fault.
    if not has_arrived:
        return f"{name}: the changed code never ran, but there is {message}"
    return HuntedCase(name, run.against.requirement, message, run.verdict == "warn")
