"""Causes: findings grouped by the mistake behind them, those that explain most failing scenarios first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

from conformance.findings import Finding, Severity
from conformance.gate.records import Level, ScenarioRecord
from conformance.pages.text import count
from conformance.report.roots import Root, root_of
from conformance.report.steps import steps_of_client

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

CauseVerdict = Literal["fail", "warn", "info", "expected-fail"]
"""The verdict that a cause gives its requirement, by level and severity, before known.toml is applied."""

CAUSE_VERDICTS: tuple[CauseVerdict, ...] = get_args(CauseVerdict)

WHY: dict[Severity, str] = {
    "lost-jobs": "An added job is in no state in which a worker looks for jobs, so it will never run.",
    "breaks-others": "Other clients on the same queue, Node.js among them, read or do something wrong because of it.",
    "wrong-behaviour": "The client behaves differently from Node.js BullMQ for the same calls.",
    "missing": "Data that other clients may wait for is not written.",
    "cosmetic": "It differs from what Node.js BullMQ writes, but nothing is known to break on it.",
}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """The part of a cause that is about one requirement: a finding, their number, and the scenarios that show it."""

    finding: Finding
    occurrences: int
    scenarios: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One thing that is wrong. `finding` is an example from `example`, the simplest scenario that shows it.

    `violations`: by requirement, that of the example first.
    """

    number: int
    """Position among the causes of the run, from 1."""
    title: str
    verdict: CauseVerdict
    level: Level | None
    finding: Finding
    example: ScenarioRecord
    violations: Mapping[str, Violation]
    occurrences: int
    scenarios: tuple[str, ...]
    """Ids of the scenarios that show it, each once, in the order of the run."""
    failing: int
    """Number of the scenarios in which it has this verdict: a cosmetic part of it fails none."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """All requirements that it violates, that of the example first."""
        return tuple(self.violations)

    @property
    def met(self) -> str:
        """How often it appeared: `in 388 scenarios`."""
        where = f"in {count(len(self.scenarios), 'scenario')}"
        return where if self.occurrences == len(self.scenarios) else f"{count(self.occurrences, 'time')} {where}"

    @property
    def line(self) -> str:
        """The cause in one line."""
        return f"{self.title}, {self.met}"


class LevelRow(Protocol):
    """The part of a ledger row that causes need."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""


Met = tuple[Finding, ScenarioRecord]
Roots = dict[Root, list[Met]]
"""The findings of one cause, by root."""

MOST_CAUSES = 25
"""Causes of a run at most. A client with more mistakes gets a coarser view of them: first the roots of one
requirement become one cause, then the rarest ones of one profile."""
MOST_FAMILIES = 8
"""Families of the rarest failures; those of further profiles share one more. As many grave causes are kept apart."""
_MINOR: dict[CauseVerdict, str] = {"warn": "warnings", "info": "information", "expected-fail": "known failures"}

FamilyOf = Callable[[str], str]
Ranked = tuple[Cause, Roots]


def area_of(requirement: str) -> str:
    """Return the family of a requirement without a profile."""
    return f"area {requirement.partition('.')[0]}"


def fold(
    scenarios: Iterable[ScenarioRecord],
    rows: Mapping[str, LevelRow],
    family_of: FamilyOf = area_of,
) -> tuple[Cause, ...]:
    """Group all findings of a run: first what explains most failing scenarios, entries of known.toml last.

    `family_of`: the name of the group in which the rarest mistakes of a requirement are counted.
    """
    met: Roots = {}
    for scenario in scenarios:
        for finding in scenario.findings:
            met.setdefault(root_of(finding), []).append((finding, scenario))
    groups: list[Roots] = [{root: occurrences} for root, occurrences in met.items()]
    if len(groups) > MOST_CAUSES:
        groups = _by_owner(met)
    ranked = sorted(((_cause(group, rows), group) for group in groups), key=_rank)
    if len(ranked) > MOST_CAUSES:
        ranked = list(_with_families(ranked, rows, family_of))
    return tuple(replace(cause, number=number) for number, (cause, _) in enumerate(ranked, start=1))


def _by_owner(met: Roots) -> list[Roots]:
    """Merge roots that violate mostly the same requirement.

    Statements and failed calls have no place of their own. If the calls of another root violate the same requirement,
    they follow from it: a failure that does not arrive explains every statement about failed jobs.
    """
    owned: dict[str, Roots] = {}
    shared: list[Roots] = []
    for root, occurrences in met.items():
        [(owner, times)] = Counter(finding.requirement for finding, _ in occurrences).most_common(1)
        if root.alone or times * 2 <= len(occurrences):
            shared.append({root: occurrences})
        else:
            owned.setdefault(owner, {})[root] = occurrences
    hosts = sorted(shared, key=lambda group: -_explained(group))
    for requirement, group in owned.items():
        host = next((host for host in hosts if _follows(group, host, requirement)), None)
        if host is not None:
            host |= group
    absorbed = {root for host in hosts for root in host}
    return [*shared, *(group for group in owned.values() if not absorbed.issuperset(group))]


def _follows(group: Roots, host: Roots, requirement: str) -> bool:
    if any(root.alone for root in host):
        return False
    placeless = all(finding.where in ("scenario", "driver") for finding, _ in _all(group))
    violated = any(finding.requirement == requirement and finding.severity != "cosmetic" for finding, _ in _all(host))
    return placeless and violated and _explained(host) > _explained(group)


def _all(group: Roots) -> Iterator[Met]:
    return (met for occurrences in group.values() for met in occurrences)


def _explained(group: Roots) -> int:
    return len(_ids(_all(group)))


def _with_families(ranked: list[Ranked], rows: Mapping[str, LevelRow], family_of: FamilyOf) -> Iterator[Ranked]:
    """Yield the first causes as they are, and the others as one for each family; the gravest as they are."""
    alone = [pair for pair in ranked if any(root.alone for root in pair[1])][:MOST_FAMILIES]
    others = [pair for pair in ranked if pair not in alone]
    for kept in range(MOST_CAUSES - len(alone), -1, -1):
        rest = _families(others[kept:], family_of)
        if len(alone) + kept + len(rest) <= MOST_CAUSES:
            break
    yield from sorted([*alone, *others[:kept]], key=_rank)
    merged = {name: {root: met for _, group in pairs for root, met in group.items()} for name, pairs in rest.items()}
    yield from sorted(((_cause(group, rows, family=name), group) for name, group in merged.items()), key=_rank)


def _families(rest: list[Ranked], family_of: FamilyOf) -> dict[str, list[Ranked]]:
    """Group causes by family; those that fail nothing by their verdict, and small families together."""
    families: dict[str, list[Ranked]] = {}
    for cause, group in rest:
        name = _MINOR.get(cause.verdict) or family_of(cause.finding.requirement)
        families.setdefault(name, []).append((cause, group))
    failing = sorted((name for name in families if name not in _MINOR.values()), key=lambda name: -len(families[name]))
    for name in failing[MOST_FAMILIES:]:
        families.setdefault("elsewhere", []).extend(families.pop(name))
    return families


def _rank(ranked: Ranked) -> tuple[bool, int, int, int]:
    cause, _ = ranked
    known = cause.verdict == "expected-fail"
    severity, verdict = SEVERITIES.index(cause.finding.severity), CAUSE_VERDICTS.index(cause.verdict)
    return (known, verdict, -cause.failing, severity)


def _cause(group: Roots, rows: Mapping[str, LevelRow], *, family: str = "") -> Cause:
    occurrences = list(_all(group))
    # The worst one: a single occurrence that fails makes it a failure.
    verdict = min((_verdict(finding, scenario, rows) for finding, scenario in occurrences), key=CAUSE_VERDICTS.index)
    worst = {root: [met for met in group[root] if _verdict(*met, rows) == verdict] for root in group}
    # The easiest example to reproduce of the root that explains most, because it is the one that people repeat; of
    # another root if that has only examples that no user can repeat.
    easiest = [(root, *min(met, key=_difficulty)) for root, met in worst.items() if met]
    often = sorted(easiest, key=lambda example: -len(_ids(worst[example[0]])))
    root, finding, example = next((example for example in often if not any(_difficulty(example[1:])[:2])), often[0])
    row = rows.get(finding.requirement)
    violated: dict[str, list[Met]] = {finding.requirement: []}
    for other, scenario in occurrences:
        violated.setdefault(other.requirement, []).append((other, scenario))
    title = root.title or title_of(finding, jobs=_jobs(group[root]))
    return Cause(
        number=0,
        title=f"{family}: {count(len(violated), 'more requirement')}, among them: {title}" if family else title,
        verdict=verdict,
        level=row.level if row else None,
        finding=finding,
        example=example,
        violations={requirement: _violation(met) for requirement, met in violated.items()},
        occurrences=sum(other.times for other, _ in occurrences),
        scenarios=_ids(occurrences),
        failing=len({scenario.id for met in worst.values() for _, scenario in met}),
    )


def _violation(occurrences: list[Met]) -> Violation:
    number = sum(finding.times for finding, _ in occurrences)
    return Violation(finding=occurrences[0][0], occurrences=number, scenarios=_ids(occurrences))


def _ids(occurrences: Iterable[Met]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(scenario.id for _, scenario in occurrences))


def _jobs(occurrences: list[Met]) -> int:
    """Return the number of jobs that findings are about: those that are kept, and those that were folded into them."""
    kept = {(scenario.id, finding.key) for finding, scenario in occurrences}
    return len(kept) + sum(finding.times - 1 for finding, _ in occurrences)


def _verdict(finding: Finding, scenario: ScenarioRecord, rows: Mapping[str, LevelRow]) -> CauseVerdict:
    row = rows.get(finding.requirement)
    level = row.level if row else None
    if finding.requirement in scenario.known:
        return "expected-fail"
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def _difficulty(met: Met) -> tuple[bool, bool, bool, int]:
    """Sort key for how hard a finding is to reproduce: worst without steps, then with a second client or a stand-in.

    Then comes one that shows nothing in Redis: a scenario with many findings does not read Redis for all of them.
    """
    finding, scenario = met
    steps = steps_of_client(scenario)
    return (not steps, not scenario.alone, not finding.redis, len(steps))


# Titles.

_NUMBER_OF_COMMAND = re.compile(r"^#\d+ ")
"""Traffic checks number the commands, and the numbers differ between runs."""

_WHICH_DRIVER = re.compile(r"^driver `[^`]*`: ")
"""Its command differs between machines."""

_OF_KIND: dict[str, str] = {
    "missing-field": "{where} is missing",
    "extra-field": "{where} exists, but not in Node",
    "missing-key": "{where} is missing",
    "extra-key": "{where} exists, but not in Node",
    "wrong-value": "{where} has a different value",
    "wrong-type": "{where} has a different type",
    "ttl": "{where} has a different lifetime",
    "missing-job": "a job is missing",
    "extra-job": "a job exists that Node does not have",
    "wrong-state": "a job is in a different state",
    "two-states": "a job is in two states at once",
    "missing-lock": "a lock is missing",
    "extra-lock": "a lock is left over",
    "missing-member": "{where} lacks an entry",
    "extra-member": "{where} has an extra entry",
    "wrong-order": "{where} is different",
    "missing-event": "the event `{name}` is missing",
    "extra-event": "there is an extra event `{name}`",
    "wrong-event-order": "events are in a different order",
    "event-field": "{where} is different",
}


def title_of(finding: Finding, *, jobs: int = 1) -> str:
    """Return a title in one short sentence. `jobs`: number of lost jobs."""
    if finding.severity == "lost-jobs":
        return f"{count(jobs, 'job')} lost"
    if finding.source in ("assertion", "protocol"):
        first_line = _WHICH_DRIVER.sub("", finding.message).partition("\n")[0]
        return f"does not hold: {finding.message}" if finding.source == "assertion" else first_line
    if finding.source == "answer":
        return f"{finding.where.removeprefix('answer.')} is a different answer"
    if finding.kind in _OF_KIND and finding.source in ("snapshot", "events"):
        return _OF_KIND[finding.kind].format(where=finding.where, name=finding.where.partition(".")[2])
    if finding.source == "oracle-health":
        return f"Node's {finding.where.removeprefix('oracle.')} cannot read the client's queue"
    if finding.source in ("invariant", "traffic"):
        return _NUMBER_OF_COMMAND.sub("", finding.actual)
    return f"{finding.where}: {finding.kind}"
