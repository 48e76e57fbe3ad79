"""One mutant is hunted: the cases that can reach it, the likeliest first, until one of them notices."""

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
from conformance.mutants.generated.change import GeneratedMutant, lines_of_change
from conformance.mutants.generated.driver import UNCHANGED, launch_of
from conformance.mutants.generated.player import PlayedCase, Player
from conformance.mutants.generated.reach import CaseReach, printable
from conformance.mutants.matrix import ScenarioCase

Fate = Literal["killed", "survived", "unreached", "broken", "undecided"]


class HuntedMutant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a mutant.

    `fate`: a case noticed; no case did; no case reaches it, or `passed` do so on the healthy client only, and not on
    the mutant; its driver does not even start; the machine was too busy for any case to tell. `case`, `requirement`,
    `message`: who noticed what; only a warning if `warns`. `played`: how
    many cases were needed. `took_s`: how long all that took (s). `passed`: how many cases noticed nothing, of those
    that `reach` it. `problems`: cases in which the kit or the oracle broke.
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
    """What one case said of a mutant. `requirement` is empty where it noticed nothing.

    `arrived`: whether the mutant had come to what is changed in it by then, in this case or before.
    """

    case: str
    requirement: str = ""
    message: str = ""
    warns: bool = False
    arrived: bool = True

    @property
    def names_the_row(self) -> bool:
        """Whether what it noticed is the rule that is broken, and not only one that every breach of others touches."""
        return bool(self.requirement) and not self.requirement.startswith(_GENERAL)


_GENERAL = ("script.", "edge.", "eviction.")
"""Rows about everything that is sent, about odd values, and about what is missing: many a mutant violates them, too."""
_FOR_THE_NAME = 12
"""So many more cases are played for the rule that is broken, where only a general one is known to be violated."""


def telling(sayings: Iterable[HuntedCase]) -> HuntedCase | None:
    """The case that says best what is broken; None where none noticed anything."""
    noticed = [each for each in sayings if each.requirement]
    return next((each for each in noticed if each.names_the_row), noticed[0] if noticed else None)


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
        by_time = sorted(reaches, key=lambda reach: reach.took_ms)
        spread = _by_turns(_by_turns(by_time, lambda reach: reach.case.partition("[")[0]), _area)
        return sorted(
            spread,
            key=lambda reach: (*(-counts[reach.case] for counts in near), -len(words & stems(reach.case))),
        )


_STEM = 4
"""So many letters tell `closeAll` to be about what `closing_meets_a_fetch` is about."""
_WORD = re.compile(r"[A-Z]?[a-z]+")
_EVERYWHERE = frozenset({"job", "jobs", "queue", "key", "keys"})


def stems(text: str) -> set[str]:
    """The beginnings of the words in names of functions and of cases, in small letters."""
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
    """Hunts mutants on one player."""

    def __init__(self, player: Player, cases: Mapping[str, ScenarioCase], is_over: Callable[[], bool]) -> None:
        self._player, self._cases, self._is_over = player, cases, is_over
        self._healthy = RestartableDriver(launch_of(UNCHANGED), 0)
        self._fair: set[str] = set()

    def close(self) -> None:
        """End the healthy client."""
        self._healthy.close()

    def hunt(self, mutant: GeneratedMutant, names: Sequence[str]) -> tuple[list[HuntedCase], str, list[str]]:
        """Play the cases until one notices: what each said; why the driver does not start; what broke in the kit.

        Where what it noticed is general, a few more are played for the rule that is broken.
        """
        self._player.forget()
        said: list[HuntedCase] = []
        problems: list[str] = []
        with TemporaryDirectory() as folder:
            arrived = Path(folder) / "arrived"
            client = RestartableDriver(launch_of(mutant, arrived), 0)
            try:
                if not self._starts(client):
                    return said, "", [f"{mutant.key}: on this machine not even the healthy client starts"]
                for name in self._to_play(names, said):
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

    def _to_play(self, names: Sequence[str], said: Sequence[HuntedCase]) -> Iterator[str]:
        """One case after the other, as long as `said`, to which each is added, does not tell what is broken."""
        left = len(names)
        for name in names:
            best = telling(said)
            if best is not None:
                left = 0 if best.names_the_row else min(left, _FOR_THE_NAME)
            if left <= 0 or self._is_over():
                return
            left -= 1
            yield name

    def _starts(self, client: RestartableDriver) -> bool:
        """Start a client; False where the machine is too busy to start any. Raises DriverBroken if it alone fails."""
        try:
            client.living()
        except HandshakeFailed:
            try:
                self._healthy.living()
            except HandshakeFailed:
                return False
            client.living()
        return True

    def _judged(self, name: str, client: RestartableDriver) -> PlayedCase:
        """Play a case. What it notices counts if the healthy client passes; on a busy machine, if it does so again."""
        case = self._cases[name]
        played = self._player.play(case, client)
        if not played.noticed:
            return played
        if played.starved or name not in self._fair:
            control = self._player.play(case, self._healthy)
            if control.noticed or control.error:
                return _undecided(played, control)
            self._fair.add(name)
        if not played.starved:
            return played
        again = self._player.play(case, client)
        return again if _agree(played, again) else _undecided(again, again)


def _agree(one: PlayedCase, other: PlayedCase) -> bool:
    return (
        one.against is not None and other.against is not None and one.against.requirement == other.against.requirement
    )


def _undecided(played: PlayedCase, control: PlayedCase) -> PlayedCase:
    seen = control.against.message if control.against else control.error
    why = "the machine was too busy to judge" if control.starved else f"the healthy client does not pass: {seen}"
    return PlayedCase(None, "pass", why, starved=control.starved, took_ms=played.took_ms)


def _said(name: str, played: PlayedCase, *, has_arrived: bool) -> HuntedCase | str:
    """What a case said of a mutant, or why it says nothing."""
    if played.error:
        return f"{name}: {played.error}"
    if played.against is None:
        return HuntedCase(name, arrived=has_arrived)
    message = printable(played.against.message)
    if not has_arrived:
        return f"{name}: what is changed never ran, and yet there is {message}"
    return HuntedCase(name, played.against.requirement, message, played.verdict == "warn")
