"""Status of each profile in a run: whether the client conforms to it, and what is still open. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from conformance.gate.outcomes import RequirementOutcome
from conformance.gate.records import RunHeader
from conformance.ledger.profiles import Profile, ProfileTable

ProfileState = Literal[
    "conformant", "known-failures", "not-conformant", "undecided", "partly-declared", "not-declared", "not-checked"
]
"""`known-failures`: conformant but for failures that known.toml lists. `partly-declared`: nothing fails, and the driver
lacks some of its operations. `not-checked`: declared, but this run could not check it or was not asked to."""

WHOLE: frozenset[ProfileState] = frozenset({"conformant", "known-failures"})
"""States in which every requirement of the profile was decided, and no failure is unknown."""

NOT_DECLARED = "not declared"
"""Reason for open requirements whose operations the driver does not declare."""

NOT_REACHED_BY_RUN = "not run"
"""Reason for open requirements that the run planned to check and did not reach."""


@dataclass(frozen=True, kw_only=True)
class ProfileStatus:
    """One profile in one run. `requirements`: how many `--level` selects.

    `missing`: operations and capabilities that the driver does not declare. `open`: undecided requirements by reason.
    `excused`: known failures, and requirements not reached because of them. `needed`: its base, if its own requirements
    hold and the base does not; then it is undecided.
    """

    name: str
    title: str
    state: ProfileState
    is_common: bool
    requirements: int
    decided: int
    failing: tuple[str, ...]
    excused: tuple[str, ...]
    missing: tuple[str, ...]
    open: Mapping[str, tuple[str, ...]]
    needed: str = ""

    @property
    def whole(self) -> bool:
        """Whether every requirement is decided, and holds or is excused."""
        return self.state in WHOLE

    @property
    def is_open(self) -> bool:
        """Whether it neither holds nor fails."""
        return not self.whole and self.state != "not-conformant"

    @property
    def remark(self) -> str:
        """The state as text, with numbers."""
        decided = self.decided_share
        match self.state:
            case "conformant":
                return "conformant"
            case "known-failures":
                failures = "1 known failure" if len(self.excused) == 1 else f"{len(self.excused)} known failures"
                return f"conformant except {failures}"
            case "not-conformant":
                return f"NOT conformant ({self._failures})"
            case "undecided" if self.needed:
                return f"undecided ({self.decided_share}; it needs {self.needed})"
            case "undecided":
                return f"undecided ({decided}; {self.why_open})"
            case "partly-declared":
                return f"declared in part ({', '.join(self.missing)} missing; {decided})"
            case "not-declared":
                return NOT_DECLARED
            case _:
                return f"not checked ({self.why_open})"

    @property
    def decided_share(self) -> str:
        """How many requirements are decided."""
        return f"{self.decided} of {self.requirements} decided"

    @property
    def _failures(self) -> str:
        return f"{len(self.failing)} of {self.requirements} {'fails' if len(self.failing) == 1 else 'fail'}"

    @property
    def short_failures(self) -> str:
        """The failures as the verdict prints them: `worker (3 of 41 fail)`."""
        return f"{self.name} ({self._failures})"

    @property
    def why_open(self) -> str:
        """Why requirements are open, with numbers."""
        return ", ".join(f"{len(requirements)} {reason}" for reason, requirements in self.open.items())


def open_requirements(
    examined: Collection[str], outcomes: Mapping[str, RequirementOutcome], header: RunHeader
) -> dict[str, str]:
    """Return the reason for each examined requirement that was not decided."""
    return {
        requirement: _why_open(requirement, outcomes.get(requirement), header)
        for requirement in examined
        if requirement not in outcomes or not outcomes[requirement].decided
    }


def _why_open(requirement: str, outcome: RequirementOutcome | None, header: RunHeader) -> str:
    if outcome is None:
        return header.not_run.get(requirement, NOT_REACHED_BY_RUN)
    if outcome.verdict == "unsupported":
        return NOT_DECLARED
    reasons = {"unchecked": "behind another failure", "changed": f"changed in BullMQ {header.oracle.version}"}
    return reasons.get(outcome.verdict, outcome.verdict)


def profile_statuses(
    profiles: ProfileTable,
    asked_for: Sequence[str],
    outcomes: Mapping[str, RequirementOutcome],
    header: RunHeader,
) -> tuple[ProfileStatus, ...]:
    """Return the status of every profile. `asked_for`: the examined requirements at or above the run's level."""
    reasons = open_requirements(asked_for, outcomes, header)
    statuses = {
        name: _status(profiles[name], requirements, outcomes, reasons, header)
        for name, requirements in profiles.rows_by_profile(asked_for).items()
        if requirements
    }
    return tuple(_with_base(status, statuses.get(profiles[status.name].base)) for status in statuses.values())


def _with_base(status: ProfileStatus, base: ProfileStatus | None) -> ProfileStatus:
    """Return the status, which is open while the base of the profile is not whole."""
    # Two rules that hold say nothing about a client that fails half of what these rules build on.
    if base is None or base.whole or not status.whole:
        return status
    return replace(status, state="undecided", needed=base.name)


def _status(
    profile: Profile,
    requirements: Sequence[str],
    outcomes: Mapping[str, RequirementOutcome],
    reasons: Mapping[str, str],
    header: RunHeader,
) -> ProfileStatus:
    touched = [outcomes[requirement] for requirement in requirements if requirement in outcomes]
    excused = tuple(outcome.requirement for outcome in touched if outcome.excused)
    missing = profile.missing(header.client.declared)
    # Known failures are decided, so they do not keep a profile open.
    still_open = [requirement for requirement in requirements if requirement in reasons and requirement not in excused]
    return ProfileStatus(
        name=profile.name,
        title=profile.title,
        state=_state(profile, touched, missing, everything_decided=not still_open),
        is_common=profile.is_common,
        requirements=len(requirements),
        decided=sum(outcome.decided for outcome in touched),
        failing=tuple(outcome.requirement for outcome in touched if outcome.reported == "fail"),
        excused=excused,
        missing=missing,
        open=_by_reason(still_open, reasons),
    )


def _by_reason(requirements: Sequence[str], reasons: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Group requirements by why they are open, the most common reason first."""
    numbers = Counter(reasons[requirement] for requirement in requirements)
    return {
        reason: tuple(requirement for requirement in requirements if reasons[requirement] == reason)
        for reason, _ in numbers.most_common()
    }


def _state(
    profile: Profile, touched: Sequence[RequirementOutcome], missing: Collection[str], *, everything_decided: bool
) -> ProfileState:
    # A failure is certain even if most of the profile is open.
    if any(outcome.reported == "fail" for outcome in touched):
        return "not-conformant"
    anything_decided = any(outcome.decided for outcome in touched)
    # Missing operations come before open requirements, because they are their cause.
    if missing:
        return "partly-declared" if anything_decided else "not-declared"
    if not touched:
        return "not-checked"
    # The event reader is a role without an operation, so only its scenarios show that the driver lacks it.
    if all(outcome.verdict == "unsupported" for outcome in touched) and not profile.is_common:
        return "not-declared"
    if not everything_decided:
        return "undecided"
    return "known-failures" if any(outcome.excused for outcome in touched) else "conformant"


def named(profiles: Sequence[ProfileStatus], states: Collection[ProfileState]) -> Iterator[ProfileStatus]:
    """Yield the profiles in one of the states."""
    return (profile for profile in profiles if profile.state in states)
