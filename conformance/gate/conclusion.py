"""Conclusion of a run: the profiles that the client conforms to, the decided share, and the exit code. No I/O.

The gate ends with the exit code of this conclusion, and every report prints its sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from conformance.gate.outcomes import (
    REPORTED_VERDICTS,
    ReportedVerdict,
    RequirementOutcome,
    is_unattributed,
    outcomes_of,
)
from conformance.gate.profile_status import ProfileStatus, named, open_requirements, profile_statuses
from conformance.gate.records import LEVELS, Level, RunFooter, RunHeader, ScenarioRecord
from conformance.ledger.profiles import ProfileTable
from conformance.pages.text import count, enumeration

ConclusionState = Literal["conformant", "holds", "not-conformant", "undecided"]
"""`conformant`: to the profiles that the sentence names. `holds`: the selection holds, which shows nothing about whole
profiles. `undecided`: nothing fails, but too little was decided; the reasons say why."""


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """Whether the run is complete.

    `finished`: it has a footer. `stopped`: why an option ended it early. `broke`: why it lacks records otherwise.
    """

    finished: bool
    planned: int
    recorded: int
    stopped: str = ""
    broke: str = ""

    @property
    def complete(self) -> bool:
        """Finished, and no planned scenario is missing."""
        return self.finished and self.recorded >= self.planned

    @property
    def sentence(self) -> str:
        """Describes what is missing; empty for a complete run."""
        if self.complete:
            return ""
        cut = (
            "it has no footer, so it was cut" if not self.finished else self.stopped or self.broke or "it stopped early"
        )
        return f"INCOMPLETE RUN: {self.recorded} of {count(self.planned, 'planned scenario')} recorded, {cut}."


def completeness(header: RunHeader, scenarios: Sequence[ScenarioRecord], footer: RunFooter | None) -> Completeness:
    """Return whether a run with these records is complete."""
    return Completeness(
        finished=footer is not None,
        planned=header.planned,
        recorded=len(scenarios),
        stopped=footer.stopped if footer else "",
        broke=footer.broke if footer else "",
    )


@dataclass(frozen=True, kw_only=True)
class DecidedShare:
    """How many of all examined requirements were decided."""

    decided: int
    requirements: int

    @property
    def percent(self) -> int:
        """The share in percent, rounded down, so that 100 means all."""
        return self.decided * 100 // self.requirements if self.requirements else 0

    @property
    def sentence(self) -> str:
        """The share as every verdict prints it."""
        return f"{self.decided} of {self.requirements} requirements decided ({self.percent} %)"

    def reaches(self, percent: float) -> bool:
        """Whether at least this percentage is decided."""
        # Multiplied instead of divided: no rounding decides whether the demand is met.
        return self.decided * 100 >= percent * self.requirements


@dataclass(frozen=True, kw_only=True)
class RunEvidence:
    """Everything that a conclusion depends on. `levels`: level of every examined requirement of the ledger.

    `footer`: None for a run that was cut; at the end of a run it has no exit code yet.
    """

    header: RunHeader
    scenarios: Sequence[ScenarioRecord]
    footer: RunFooter | None
    levels: Mapping[str, Level]
    profiles: ProfileTable

    @cached_property
    def outcomes(self) -> dict[str, RequirementOutcome]:
        """The outcome of each requirement."""
        return outcomes_of(self.scenarios, self.levels, self.footer.stale if self.footer else {})

    @cached_property
    def statuses(self) -> tuple[ProfileStatus, ...]:
        """Status of every profile, for requirements at or above the run's level."""
        least = self.header.options.get("level", LEVELS[-1])
        asked_for = [name for name, level in self.levels.items() if LEVELS.index(level) <= LEVELS.index(least)]
        return profile_statuses(self.profiles, asked_for, self.outcomes, self.header)

    @property
    def completeness(self) -> Completeness:
        """Whether the run is complete."""
        return completeness(self.header, self.scenarios, self.footer)

    @property
    def share(self) -> DecidedShare:
        """The decided share."""
        decided = sum(1 for name in self.levels if name in self.outcomes and self.outcomes[name].decided)
        return DecidedShare(decided=decided, requirements=len(self.levels))

    @property
    def demanded(self) -> tuple[str, ...]:
        """The profiles of `--profile`, with their bases."""
        return self.profiles.with_bases(self.header.options.get("profile", ()))

    @property
    def is_narrowed(self) -> bool:
        """Whether options or pytest restrict the run to a part; it then shows nothing about profiles."""
        options = self.header.options
        narrowed = options.get("select") or options.get("handovers") or self.header.deselected
        return bool(narrowed) or self.header.tier == "smoke"

    @property
    def least_percent(self) -> float | None:
        """The percentage of `--min-decided`."""
        asked = self.header.options.get("min_decided", "")
        return percentage(asked) if asked else None


def percentage(text: str) -> float:
    """Read `30`, `30%` or `30 %`. Raises ValueError for anything else and for values outside 0 to 100."""
    percent = float(text.strip().removesuffix("%"))
    if not 0 <= percent <= 100:
        raise ValueError(f"{text} is not between 0 and 100")
    return percent


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The conclusion that every report prints. `reasons`: why the run is not conformant, or reservations if it is.

    `open`: why examined requirements were not decided. `advice`: what to do next if the run is undecided. `narrowed`:
    options restricted the run to a part.
    """

    state: ConclusionState
    exit_code: int
    statement: str
    reasons: tuple[str, ...]
    advice: str
    share: DecidedShare
    profiles: tuple[ProfileStatus, ...]
    open: Mapping[str, str]
    narrowed: bool
    partner: str = ""
    """The second client of hand-overs with its version; empty for the oracle."""

    @property
    def conformant(self) -> bool:
        """Whether the client conforms to at least one profile."""
        return self.state == "conformant"

    @property
    def sentence(self) -> str:
        """The conclusion as text."""
        reasons = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        advice = f" {self.advice}" if self.advice else ""
        partner = f" Its partner in hand-overs was {self.partner}." if self.partner else ""
        return f"{self.statement}{reasons}. {self.share.sentence}.{partner}{advice}"


def draw_conclusion(evidence: RunEvidence) -> Conclusion:
    """Draw the conclusion. Failures come before errors, and errors before open requirements."""
    # From what a user must fix to what is only open: the first rule that applies decides the exit code.
    for rule in (_not_conformant, _broken, _open, _whole_profiles, _selection, _enough):
        conclusion = rule(evidence)
        if conclusion is not None:
            return conclusion
    return _undecided(evidence, "no profile is whole", reasons=_nearest(evidence))


# The rules in order: each returns a conclusion if it applies, otherwise None.


def _not_conformant(evidence: RunEvidence) -> Conclusion | None:
    failing = [word for word in _blocking(evidence) if word in ("fail", "stale")]
    problems = evidence.footer.problems if evidence.footer else []
    if not failing and not problems and not _ended_with(evidence, EXIT_CODES["not-conformant"]):
        return None
    # Failures of profiles are named by the profiles already.
    by_profiles = sum(len(status.failing) for status in _claimed_and_failing(evidence))
    named_apart = [word for word in failing if word != "fail" or failing.count("fail") != by_profiles]
    reasons = list(_phrases(named_apart))
    reasons += problems or (["the run ended with exit code 1"] if not failing else [])
    return _conclusion(evidence, "not-conformant", _statement(evidence, "NOT CONFORMANT"), reasons)


def _broken(evidence: RunEvidence) -> Conclusion | None:
    completeness = evidence.completeness
    reasons = list(_phrases([word for word in _blocking(evidence) if word == "error"]))
    # A run that an option stopped is incomplete on purpose; a cut one may hide failures.
    if not completeness.complete and not completeness.stopped:
        reasons.append("the run is incomplete")
    elif _ended_with(evidence, EXIT_BROKEN) and not reasons:
        reasons.append("the run ended with exit code 3")
    if not reasons:
        return None
    # No advice: another run with other options does not repair a broken set-up.
    return replace(_undecided(evidence, *reasons), exit_code=EXIT_BROKEN, advice="")


def _open(evidence: RunEvidence) -> Conclusion | None:
    reasons = list(_phrases([word for word in _blocking(evidence) if word in ("inconclusive", "unchecked")]))
    if evidence.completeness.stopped and not evidence.completeness.complete:
        reasons.append(evidence.completeness.stopped)
    least = evidence.least_percent
    if least is not None and not evidence.share.reaches(least):
        reasons.append(f"less than the {least:g} % that --min-decided asks for")
    if not reasons:
        return None
    return _undecided(evidence, *reasons)


def _whole_profiles(evidence: RunEvidence) -> Conclusion | None:
    # Common profiles alone do not make a client useful, so they do not count as conformant.
    whole = [status for status in evidence.statuses if status.whole and not status.is_common]
    if evidence.demanded:
        lacking = [status for status in evidence.statuses if status.name in evidence.demanded and not status.whole]
        if lacking:
            remarks = [f"{status.name}: {status.remark}" for status in lacking]
            return _undecided(
                evidence,
                f"not whole: {enumeration([status.name for status in lacking])}",
                reasons=remarks,
            )
    # Without --profile, a narrowed run has not checked whole profiles.
    elif evidence.is_narrowed or not whole:
        return None
    return _conclusion(evidence, "conformant", _statement(evidence, "CONFORMANT"), _reservations(evidence))


def _selection(evidence: RunEvidence) -> Conclusion | None:
    decided = [outcome for outcome in evidence.outcomes.values() if outcome.decided]
    if not evidence.is_narrowed or not decided:
        return None
    of_all = f"{len(decided)} of {count(len(evidence.outcomes), 'selected requirement')}"
    one = len(decided) == 1
    excused = any(outcome.excused for outcome in decided)
    how = (
        ("passes or is known to fail" if one else "pass or are known to fail")
        if excused
        else "passes"
        if one
        else "pass"
    )
    statement = f"SELECTION HOLDS: {of_all} {how}"
    return _conclusion(evidence, "holds", statement, _reservations(evidence))


def _enough(evidence: RunEvidence) -> Conclusion | None:
    """Apply --min-decided; the rule `_open` has already checked that the share is reached."""
    if evidence.least_percent is None or not evidence.share.decided:
        return None
    statement = f"NO FAILURE in the {evidence.least_percent:g} % of --min-decided; no profile is whole"
    return _conclusion(evidence, "holds", statement, _reservations(evidence))


# Parts of the rules.


EXIT_CODES: dict[ConclusionState, int] = {
    "conformant": 0,
    "holds": 0,
    "not-conformant": 1,
    "undecided": 4,
}
EXIT_BROKEN = 3
"""Exit code of a run that is undecided because the kit or the set-up broke."""


def _conclusion(
    evidence: RunEvidence, state: ConclusionState, statement: str, reasons: Sequence[str], *, advice: str = ""
) -> Conclusion:
    return Conclusion(
        state=state,
        exit_code=EXIT_CODES[state],
        statement=statement,
        reasons=tuple(reasons),
        advice=advice,
        share=evidence.share,
        profiles=evidence.statuses,
        open=open_requirements(tuple(evidence.levels), evidence.outcomes, evidence.header),
        narrowed=evidence.is_narrowed or bool(evidence.demanded),
        partner=evidence.header.partner.text if evidence.header.partner else "",
    )


def _undecided(evidence: RunEvidence, *why: str, reasons: Sequence[str] = ()) -> Conclusion:
    nothing = not any(outcome.decided for outcome in evidence.outcomes.values())
    statement = f"UNDECIDED: {'; '.join([*why, 'no requirement was decided'] if nothing else why)}"
    return _conclusion(evidence, "undecided", statement, reasons, advice=_advice(evidence))


def _ended_with(evidence: RunEvidence, exit_code: int) -> bool:
    """Whether the gate ended with this exit code for a reason that no scenario shows."""
    # If a verdict explains the exit code, that verdict is the reason, and not the code.
    return evidence.footer is not None and evidence.footer.exit_code == exit_code and not _blocking(evidence)


def _blocking(evidence: RunEvidence) -> list[ReportedVerdict]:
    """Return every verdict that makes the run fail. With `--profile`, only failures of those profiles count."""
    judged = [outcome for outcome in evidence.outcomes.values() if _counts(outcome, evidence)]
    words = [outcome.reported for outcome in judged if outcome.blocks or _was_missed(outcome, evidence)]
    return words + [scenario.verdict for scenario in evidence.scenarios if is_unattributed(scenario)]


def _counts(outcome: RequirementOutcome, evidence: RunEvidence) -> bool:
    """Whether a requirement must hold. Errors, stale entries and common profiles always count."""
    # Errors and stale entries are not softened by --profile, because they make the result itself doubtful.
    if not evidence.demanded or outcome.reported in ("error", "stale"):
        return True
    profile = evidence.profiles.profile_of(outcome.requirement)
    return profile is None or profile.is_common or profile.name in evidence.demanded


def _was_missed(outcome: RequirementOutcome, evidence: RunEvidence) -> bool:
    """Whether a scenario ended before it checked a MUST of a profile that the driver declares."""
    # SHOULD and MAY may stay unchecked: they never fail a run.
    if outcome.reported != "unchecked" or outcome.level not in (None, "MUST"):
        return False
    profile = evidence.profiles.profile_of(outcome.requirement)
    return profile is None or not profile.missing(evidence.header.client.declared)


_PHRASES: dict[ReportedVerdict, tuple[str, str]] = {
    "fail": ("failure", "failures"),
    "error": ("error of the kit or the set-up", "errors of the kit or the set-up"),
    "stale": ("stale entry in known.toml", "stale entries in known.toml"),
    "inconclusive": ("open question", "open questions"),
    "changed": ("requirement that this BullMQ has changed", "requirements that this BullMQ has changed"),
    "expected-fail": ("known failure", "known failures"),
    "warn": ("warning", "warnings"),
    "unchecked": ("requirement not reached", "requirements not reached"),
}


def _phrases(words: Sequence[ReportedVerdict]) -> tuple[str, ...]:
    numbers = Counter(words)
    return tuple(count(numbers[word], *_PHRASES[word]) for word in REPORTED_VERDICTS if numbers[word])


def _reservations(evidence: RunEvidence) -> tuple[str, ...]:
    """Return the reservations about a client whose run ended well."""
    words = [outcome.reported for outcome in evidence.outcomes.values()]
    kept = [word for word in words if word in ("changed", "warn", "expected-fail", "inconclusive", "unchecked")]
    level = evidence.header.options.get("level")
    return (*_phrases(kept), *([f"level {level} only"] if level else ()))


# The sentence about profiles.


def _statement(evidence: RunEvidence, otherwise: str) -> str:
    if evidence.is_narrowed and not evidence.demanded:
        return f"{otherwise} in this selection"
    special = [status for status in evidence.statuses if not status.is_common]
    failing = _claimed_and_failing(evidence)
    if not failing and otherwise == "CONFORMANT":
        everything = _of_all_profiles(evidence, special)
        if everything:
            return everything
    whole = [_holding(status) for status in special if status.whole]
    parts = [*_about_profiles(whole, failing, otherwise), *_the_others(evidence)]
    return "; ".join(parts)


def _claimed_and_failing(evidence: RunEvidence) -> list[ProfileStatus]:
    """Return the failing profiles that the driver declares or the run was asked for: no client claims the others."""
    failing = named(evidence.statuses, {"not-conformant"})
    return [status for status in failing if not status.missing or status.name in evidence.demanded]


def _about_profiles(whole: Sequence[str], failing: Sequence[ProfileStatus], otherwise: str) -> list[str]:
    parts = [f"CONFORMANT as {enumeration(whole)}"] if whole else []
    if failing:
        as_what = enumeration([status.short_failures for status in failing])
        return [*parts, f"NOT as {as_what}" if whole else f"{otherwise} as {as_what}"]
    return [otherwise, *parts] if not whole or otherwise == "NOT CONFORMANT" else parts


def _holding(status: ProfileStatus) -> str:
    failures = count(len(status.excused), "known failure")
    return f"{status.name} (except {failures})" if status.state == "known-failures" else status.name


def _of_all_profiles(evidence: RunEvidence, special: Sequence[ProfileStatus]) -> str:
    """Return `CONFORMANT` without names if all profiles conform, or all that one Redis can check; otherwise empty."""
    states = {status.state for status in evidence.statuses if status.name not in _elsewhere(evidence)}
    if states != {"conformant"}:
        return ""
    elsewhere = [status.name for status in special if status.name in _elsewhere(evidence)]
    if not elsewhere:
        return "CONFORMANT"
    checkable = count(len(special) - len(elsewhere), "profile")
    return f"CONFORMANT in all {checkable} that one Redis can check; {enumeration(elsewhere)} not checked"


def _elsewhere(evidence: RunEvidence) -> set[str]:
    """Return the profiles that this run's Redis cannot check."""
    return {
        name
        for name, profile in evidence.profiles.items()
        if profile.needs and profile.needs != evidence.header.redis.mode
    }


def _the_others(evidence: RunEvidence) -> list[str]:
    asked_for = evidence.demanded or tuple(evidence.profiles)
    others = [status for status in evidence.statuses if status.is_open and status.name in asked_for]
    undecided = [
        f"{status.name} ({f'needs {status.needed}' if status.needed else status.decided_share})"
        for status in named(others, {"undecided"})
    ]
    parts = [f"undecided as {enumeration(undecided)}"] if undecided else []
    in_part = [
        status
        for status in evidence.statuses
        if status.missing and status.state in ("partly-declared", "not-conformant") and _declares_any(status, evidence)
    ]
    for words, statuses in (
        ("declared in part", in_part),
        # About what the driver does not declare only if it is asked for.
        ("not declared", named(others, {"not-declared"}) if evidence.demanded else ()),
        ("not checked", named(others, {"not-checked"})),
    ):
        names = [status.name for status in statuses if not status.is_common]
        parts += [f"{enumeration(names)} {words}"] if names else []
    return parts


def _declares_any(status: ProfileStatus, evidence: RunEvidence) -> bool:
    """Whether the driver declares something of a profile that no profile needs which it declares whole.

    A client that only adds jobs has no part in `pause`, which needs jobs too. A demanded profile is named elsewhere.
    """
    needs = {name: set(profile.missing(frozenset())) for name, profile in evidence.profiles.items()}
    shared = set().union(*(needs[other.name] for other in evidence.statuses if not other.missing))
    return bool(needs[status.name] - shared - set(status.missing)) and status.name not in evidence.demanded


# Advice.


def _nearest(evidence: RunEvidence) -> tuple[str, ...]:
    """Describe what is open in the declared profile with the fewest open requirements."""
    undecided = [
        status for status in named(evidence.statuses, {"undecided"}) if not status.is_common and not status.needed
    ]
    nearest = min(undecided, key=lambda status: status.requirements - status.decided, default=None)
    return (f"nearest is {nearest.name}: {nearest.why_open}",) if nearest else ()


def _advice(evidence: RunEvidence) -> str:
    open_questions = [
        outcome.requirement for outcome in evidence.outcomes.values() if outcome.reported == "inconclusive"
    ]
    # Open questions come first: a repetition may decide them without any change.
    if open_questions:
        return f"Next: on a quiet machine, `--select {open_questions[0]}`."
    if not any(outcome.decided for outcome in evidence.outcomes.values()):
        return "Next: `bullmq-conformance driver check` lists what the driver lacks."
    if evidence.header.tier != "full" and any("tier" in reason for reason in evidence.header.not_run.values()):
        return "Next: `--tier full`."
    advice = "Next: `bullmq-conformance list --profiles` lists the operations that each profile needs"
    # A smaller share excuses nothing that the run should have decided.
    helps = not _blocking(evidence) and evidence.completeness.complete
    return f"{advice}; `--min-decided` accepts a smaller share." if helps else f"{advice}."
