"""The verb `mutants`: choose mutants, complete the baseline, sweep, and apply the judgements."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated

import msgspec

from conformance.environment.clients import find_toolchain
from conformance.gate.options import NodeProgram
from conformance.mutants.generated.areas import AREAS, area_of
from conformance.mutants.generated.case_runner import CaseRunnerSetting
from conformance.mutants.generated.catalogue import Catalogue, sample
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunt import Likelihood
from conformance.mutants.generated.judgements import judgement_of
from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.reach import CaseReach, case_names, scenario_hashes
from conformance.mutants.generated.store import Store
from conformance.mutants.generated.sweep import Sweep, complete_baseline
from conformance.mutants.generated.workers import worker_processes
from conformance.mutants.idle import ProvenScenario, cases_by_scenario, load_reasons, prove
from conformance.mutants.matrix import MutantRunner, ScenarioCase, all_cases
from conformance.options import Option
from conformance.participants.marks import TIERS, Tier, tier_of
from conformance.problems import NothingSelected, UsageProblem
from conformance.servers import open_server
from conformance.upstream.scripts import load_scripts

_TELL_EVERY = 50
"""Cases of the baseline between two lines of progress."""
_MOST_JOBS = 8


def default_jobs() -> int:
    """Processes: twice the cores, because cases mostly wait."""
    return min(2 * (os.cpu_count() or 1), _MOST_JOBS)


class MutantConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All options of `mutants`. With `keys` nothing is drawn; `jobs` None: `default_jobs`."""

    size: Annotated[int, Option("Number of mutants.", "--sample", at_least=1)] = 30
    seeds: Annotated[Sequence[int], Option("Seed of a sample; repeatable for several samples.", "--seed")] = (0,)
    area: Annotated[str, Option("Only mutants of one area: adding, claiming, finishing, ...")] = ""
    file: Annotated[str, Option("Glob over scripts and modules: 'lua *', moveToActive.")] = "*"
    keys: Annotated[
        Sequence[str], Option("Only this mutant (key or glob), without a sample; repeatable.", "--mutant")
    ] = ()
    tiers: Annotated[Sequence[Tier], Option("Tier of the scenarios to run; repeatable.", "--tier")] = ("full",)
    at_least: Annotated[float, Option("Fail if a smaller percentage is killed.", at_least=0, at_most=100)] = 0.0
    significant: Annotated[
        bool, Option("Fail only if the whole confidence interval is below --at-least: a small sample varies.")
    ] = False
    cases: Annotated[int, Option("Most cases per mutant; 0: all.", at_least=0)] = 150
    quick: Annotated[bool, Option("Run only the first case of each scenario, and no slow one.")] = False
    slow: Annotated[bool, Option("Run slow cases too, which repeat hundreds of times what other cases do once.")] = (
        False
    )
    jobs: Annotated[int | None, Option("Processes; default: twice the cores.", at_least=1)] = None
    only_list: Annotated[bool, Option("List the mutants, and run nothing.", "--list")] = False
    only_idle: Annotated[bool, Option("List the scenarios that no mutant fails, without a sample.", "--idle")] = False
    page: Annotated[Path | None, Option("File for the kill matrix (Markdown); its record is written next to it.")] = (
        None
    )
    node: NodeProgram = ""

    @property
    def processes(self) -> int:
        """How many processes run cases."""
        return self.jobs or default_jobs()

    @property
    def most_cases(self) -> int:
        """How many cases run at most for a mutant."""
        return self.cases or sys.maxsize


class MutantSession:
    """One call of the verb."""

    def __init__(self, config: MutantConfig) -> None:
        if config.area and config.area not in AREAS:
            raise UsageProblem(f"unknown area {config.area!r} for --area", hint=f"choose from {', '.join(AREAS)}")
        self._config = config
        self._toolchain = find_toolchain(config.node, lambda text: print(text, file=sys.stderr))
        scripts = load_scripts(self._toolchain.package, self._toolchain.node)
        self._official = scripts
        self._scripts = {name: script.text for name, script in scripts.items()}
        self._catalogue = Catalogue.of(self._scripts)

    def text(self, mutant: GeneratedMutant) -> bytes:
        """The healthy text that a mutant changes."""
        return self._catalogue.text(mutant)

    def mutant(self, key: str) -> GeneratedMutant:
        """The mutant with this key. Raises UsageProblem for an unknown one."""
        return self._catalogue.find(key)

    def chosen(self) -> list[GeneratedMutant]:
        """The mutants of all samples. Raises NothingSelected where there are none."""
        return [mutant for _, mutants in self._samples() for mutant in mutants]

    def outcomes(self, announce: Callable[[str], None], tell: Callable[[JudgedMutant], None]) -> Iterator[SweepOutcome]:
        """Sweep one sample after the other, for each tier. The callback gets each mutant once it is judged."""
        samples = self._samples()
        by_tier = {tier: self._cases(tier) for tier in self._config.tiers}
        cases = {name: case for allowed in by_tier.values() for name, case in allowed.items()}
        store = Store(scenario_hashes(cases))
        likelihood = Likelihood(store.kills())
        setting = CaseRunnerSetting(oracle=self._toolchain.oracle, scripts=self._scripts)
        with worker_processes(setting, self._config.processes) as pool:
            reaches = complete_baseline(list(cases), store, pool, _progress(announce))
            _tell_unhealthy(reaches.values(), announce)
            for (tier, allowed), (seed, mutants) in product(by_tier.items(), samples):
                played = {name: reaches[name] for name in allowed}
                sweep = Sweep(
                    played, store, pool, self._config.processes, self._config.most_cases, self.text, likelihood
                )
                judged = []
                by_key = {mutant.key: mutant for mutant in mutants}
                for hunted in sweep.hunt(mutants):
                    mutant = by_key[hunted.key]
                    code = mutant.code(self.text(mutant))
                    judgement = judgement_of(hunted.key, mutant.line, code)
                    judged.append(JudgedMutant(hunted, mutant.line, judgement, code))
                    tell(judged[-1])
                yield SweepOutcome(seed, tier, len(allowed), judged)

    def baseline(self, announce: Callable[[str], None]) -> tuple[dict[str, ScenarioCase], dict[str, CaseReach]]:
        """The cases of the last tier, and what each of them passes on the healthy client."""
        cases = self._cases(self._config.tiers[-1])
        setting = CaseRunnerSetting(oracle=self._toolchain.oracle, scripts=self._scripts)
        with worker_processes(setting, self._config.processes) as pool:
            return cases, complete_baseline(list(cases), Store(scenario_hashes(cases)), pool, _progress(announce))

    def proven(self) -> Iterator[ProvenScenario]:
        """Every scenario, with a mutant that fails it: one written by hand, or one that a hunt here has shown."""
        cases = {name: case for tier in self._config.tiers for name, case in self._cases(tier).items()}
        kills = Store(scenario_hashes(cases)).kills()
        known = {kill.case.partition("[")[0]: f"a generated mutant near {kill.near[0]}" for kill in kills}
        logging.disable()  # broken clients log a lot
        with open_server(None, announce=lambda _text: None) as server:
            runner = MutantRunner(server, self._toolchain.oracle, self._official)
            try:
                yield from prove(runner, cases_by_scenario(cases.values()), known, load_reasons())
            finally:
                runner.close()

    def _cases(self, tier: str) -> dict[str, ScenarioCase]:
        """The cases that may notice: those of the tier, on a single Redis."""
        most = TIERS.index(tier)
        named = case_names(all_cases()).items()
        cases = {
            name: case
            for name, case in named
            if not case.scenario.needs
            and TIERS.index(tier_of(case.scenario, case.arguments)) <= most
            and (self._config.slow or not case.scenario.slow)
        }
        return quick_cases(cases) if self._config.quick else cases

    def _samples(self) -> list[tuple[int | None, list[GeneratedMutant]]]:
        """Each sample with its seed."""
        config = self._config
        everything = [
            mutant
            for mutant in self._catalogue.all(config.file)
            if not config.area or area_of(mutant.key) == config.area
        ]
        if config.keys:
            by_pattern = {key: [each for each in everything if fnmatchcase(each.key, key)] for key in config.keys}
            useless = next((key for key, matches in by_pattern.items() if not matches), None)
            if useless is not None:
                raise NothingSelected(
                    f"no mutant matches {useless!r} of --mutant", hint="`bullmq-conformance mutants --list` shows some"
                )
            named = dict.fromkeys(mutant for matches in by_pattern.values() for mutant in matches)
            samples: list[tuple[int | None, list[GeneratedMutant]]] = [(None, list(named))]
        else:
            samples = [(seed, sample(everything, config.size, seed)) for seed in config.seeds]
        if not all(mutants for _, mutants in samples):
            raise NothingSelected("no mutant is as asked for", hint="`bullmq-conformance mutants --list` shows some")
        return samples


def quick_cases(cases: Mapping[str, ScenarioCase]) -> dict[str, ScenarioCase]:
    """The first case of each scenario that is not slow: so few that their baseline is recorded in a minute or two."""
    first: dict[str, str] = {}
    for name, case in cases.items():
        if not case.scenario.slow:
            first.setdefault(case.id, name)
    return {name: cases[name] for name in first.values()}


def _progress(announce: Callable[[str], None]) -> Callable[[int, int], None]:
    def tell(done: int, of: int) -> None:
        if done % _TELL_EVERY == 0 or done == of:
            announce(f"baseline: {done} of {of} cases")

    return tell


def _tell_unhealthy(reaches: Iterable[CaseReach], announce: Callable[[str], None]) -> None:
    """Announce the cases that the healthy client does not decide: they show nothing about a mutant."""
    for reach in reaches:
        if not reach.healthy:
            announce(f"not run: {reach.case}, which the healthy client does not decide on this machine")
