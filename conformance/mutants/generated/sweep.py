"""A sweep: the baseline is completed, and every mutant of a sample is hunted, on several processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass, field

import msgspec

from conformance.mutants.generated import workers
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunt import HuntedCase, HuntedMutant, Likelihood, telling
from conformance.mutants.generated.reach import CaseReach, reaching
from conformance.mutants.generated.store import Store, fingerprint

_Hunted = tuple[list[HuntedCase], str, list[str]]


def complete_baseline(
    cases: Sequence[str], store: Store, pool: ProcessPoolExecutor, progress: Callable[[int, int], None]
) -> dict[str, CaseReach]:
    """The baseline of these cases; what is not known yet is recorded, and kept at once."""
    known = store.reaches()
    missing = [case for case in cases if case not in known]
    recorded = as_completed([pool.submit(workers.record, case) for case in missing])
    for number, reach in enumerate((future.result() for future in recorded), start=1):
        # Kept at once, so that an interrupted sweep does not record it again.
        store.keep_reach(reach)
        known[reach.case] = reach
        progress(number, len(missing))
    return {case: known[case] for case in cases}


@dataclass
class Sweep:
    """Hunts mutants.

    `reaches`: the baseline of the cases that may be run; `most`: how many for one mutant. `text_of`: the healthy
    text that a mutant changes. `likelihood`: learns from every kill.
    """

    reaches: Mapping[str, CaseReach]
    store: Store
    pool: ProcessPoolExecutor
    jobs: int
    most: int
    text_of: Callable[[GeneratedMutant], bytes]
    likelihood: Likelihood
    _known: dict[str, dict[str, HuntedCase]] = field(default_factory=dict)

    def hunt(self, mutants: Sequence[GeneratedMutant]) -> Iterator[HuntedMutant]:
        """Every mutant's fate, as it becomes known."""
        self._known = self.store.sayings()
        unknown = []
        for mutant in mutants:
            fate = self._fate_from_cache(mutant)
            if fate is None:
                unknown.append(mutant)
            else:
                yield fate
        yield from self._run_cases(unknown)

    def _run_cases(self, mutants: Sequence[GeneratedMutant]) -> Iterator[HuntedMutant]:
        waiting = list(reversed(mutants))
        running: dict[Future[_Hunted], tuple[GeneratedMutant, float]] = {}
        while waiting or running:
            # Only as many as there are processes: later mutants use the likelihood learned by then.
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                running[self.pool.submit(workers.hunt, mutant, self._order(mutant))] = mutant, time.monotonic()
            # As soon as one ends, its result changes the order of cases for the next mutant.
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                mutant, started_s = running.pop(future)
                yield self._concluded(mutant, future.result(), time.monotonic() - started_s)

    def _order(self, mutant: GeneratedMutant) -> list[str]:
        """The cases to run, without those that are known to notice nothing."""
        known = self._known_of(mutant)
        # A known result is not repeated: a case that noticed nothing before will not do so now.
        reaches = [reach for reach in reaching(mutant, self.reaches.values()) if reach.case not in known]
        left = max(0, self.most - len(known))
        ordered = self.likelihood.ordered(mutant, reaches, self.text_of(mutant))
        return [reach.case for reach in ordered[:left]]

    def _known_of(self, mutant: GeneratedMutant) -> dict[str, HuntedCase]:
        """Known results on the mutant, of the cases that may be run here: other tiers do not count."""
        reachable = {reach.case for reach in reaching(mutant, self.reaches.values())}
        known = self._known.get(fingerprint(mutant), {})
        return {case: said for case, said in known.items() if case in reachable}

    def _fate_from_cache(self, mutant: GeneratedMutant) -> HuntedMutant | None:
        reachable = {reach.case for reach in reaching(mutant, self.reaches.values())}
        if not reachable:
            return HuntedMutant(key=mutant.key, fate="unreached")
        known = self._known_of(mutant)
        noticed = telling(known.values())
        if noticed is not None:
            self.likelihood.note(mutant, noticed.case)
            return _killed(mutant, noticed, 0, 0.0, [])
        # As many as a hunt would run: more cases would not be asked for.
        if len(known) >= min(len(reachable), self.most):
            return _alive(mutant, known, len(reachable))
        return None

    def _concluded(self, mutant: GeneratedMutant, hunted: _Hunted, took_s: float) -> HuntedMutant:
        said, broken, problems = hunted
        if broken:
            return HuntedMutant(key=mutant.key, fate="broken", message=broken, took_s=took_s, problems=problems)
        self.store.keep_sayings(mutant, said)
        noticed = telling(said)
        if noticed is not None:
            self.store.keep_kill(self.likelihood.note(mutant, noticed.case))
            return _killed(mutant, noticed, len(said), took_s, problems)
        passed = self._known_of(mutant) | {case.case: case for case in said}
        alive = _alive(mutant, passed, sum(1 for _ in reaching(mutant, self.reaches.values())))
        # No case could decide, so nothing says that the mutant survives.
        if not said:
            alive = msgspec.structs.replace(alive, fate="undecided", message=problems[0] if problems else alive.message)
        return msgspec.structs.replace(alive, played=len(said), took_s=took_s, problems=problems)


def _alive(mutant: GeneratedMutant, passed: Mapping[str, HuntedCase], reach: int) -> HuntedMutant:
    """No case noticed it. If the changed code never ran, that says nothing about the gate."""
    # A case that passed without running the changed code shows nothing about the gate.
    if any(case.arrived for case in passed.values()):
        return HuntedMutant(key=mutant.key, fate="survived", passed=len(passed), reach=reach)
    what = "the script was not called" if mutant.language == "lua" else "what is changed did not run"
    message = f"never reached: {what} in any of the {len(passed)} cases that pass it on the healthy client"
    return HuntedMutant(key=mutant.key, fate="unreached", message=message, passed=len(passed), reach=reach)


def _killed(mutant: GeneratedMutant, by: HuntedCase, played: int, took_s: float, problems: list[str]) -> HuntedMutant:
    return HuntedMutant(
        key=mutant.key,
        fate="killed",
        case=by.case,
        requirement=by.requirement,
        message=by.message,
        warns=by.warns,
        played=played,
        took_s=took_s,
        problems=problems,
    )
