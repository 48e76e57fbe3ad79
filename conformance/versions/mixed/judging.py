"""Judges a run in which two versions share a queue by the runs in which each of them is alone. Pure.

No rule is right for every version, because a version may ignore an option. So each job is measured by the version
that has added it, and what one of the versions does alone is never a fault of sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from conformance.versions.mixed.stage import FeatureOutcome

Word = Literal["nothing", "other order", "early", "late", "refused", "twice", "lost"]
"""The effect on jobs while both versions share a queue. `refused`: a call fails that the older version makes.

`early`: a job is run although a pause, a limit or a delay forbids it.
"""

WORDS: tuple[Word, ...] = get_args(Word)
"""The mildest first."""

EARLY_ENOUGH_MS = 500
"""A job that is handed out this much later (earlier) than by any version alone is late (early)."""


@dataclass(frozen=True)
class Harm:
    """The word, and what it is about in one sentence; empty if nothing happens."""

    word: Word
    detail: str = ""

    @property
    def rank(self) -> int:
        """The place among all words: the worst is the highest."""
        return WORDS.index(self.word)


@dataclass(frozen=True)
class Alone:
    """The runs in which one version has all roles."""

    older: FeatureOutcome
    newer: FeatureOutcome

    def __iter__(self) -> Iterator[FeatureOutcome]:
        return iter((self.older, self.newer))


def judge(mixed: FeatureOutcome, alone: Alone, added_by: Mapping[str, str]) -> Harm:
    """The worst that the run shows. `added_by`: the side (`older`, `newer`) that adds each job, by its name."""
    return max((Harm("nothing"), *_all(mixed, alone, added_by)), key=lambda found: found.rank)


def _all(mixed: FeatureOutcome, alone: Alone, added_by: Mapping[str, str]) -> Iterator[Harm]:
    yield from _refused(mixed, alone)
    # Sharing does not cause the effects of a call that the newer version refuses anyway.
    if {refusal.step for refusal in mixed.refusals} & {refusal.step for refusal in alone.newer.refusals}:
        return
    yield from _counted(mixed, alone, added_by)
    yield from _found(mixed, alone)
    yield from _order(mixed, alone)
    yield from _late(mixed, alone)
    yield from _early(mixed, alone)


def _refused(mixed: FeatureOutcome, alone: Alone) -> Iterator[Harm]:
    accepted = {refusal.step for refusal in mixed.refusals} - {refusal.step for refusal in alone.older.refusals}
    for refusal in mixed.refusals:
        if refusal.step in accepted:
            call = f"{refusal.op or 'a step'} of the {refusal.role or 'worker'}"
            yield Harm("refused", f"{call} fails: {' '.join(refusal.message.split())[:160]}")


def _counted(mixed: FeatureOutcome, alone: Alone, added_by: Mapping[str, str]) -> Iterator[Harm]:
    """Jobs that are run less or more often than by the versions alone."""
    counts, older, newer = mixed.counts, alone.older.counts, alone.newer.counts
    for job in sorted({*counts, *older, *newer}):
        promise = alone.newer if added_by.get(job) == "newer" else alone.older
        least, most = min(older[job], newer[job]), max(older[job], newer[job])
        surplus = [place for place in mixed.left if place not in promise.left]
        if counts[job] > most:
            yield Harm("twice", f"job {job} {_runs(counts[job])} instead of {_times(most)}")
        elif counts[job] < max(least, promise.counts[job]):
            word: Word = "late" if job in mixed.waits else "lost"
            behind = f"; left behind: {', '.join(surplus)}" if surplus else ""
            wanted = _times(max(promise.counts[job], least))
            yield Harm(word, f"job {job} {_runs(counts[job])} instead of {wanted}{behind}")
    for event in mixed.unheard:
        if all(event not in other.unheard for other in alone):
            yield Harm("lost", f"the event reader is not given the event {event}")


def _found(mixed: FeatureOutcome, alone: Alone) -> Iterator[Harm]:
    """Findings of the checker of hand-overs that no version has alone."""
    words: Sequence[tuple[Word, str]] = (("lost", "lost"), ("twice", "twice"))
    for word, name in words:
        usual = {text for other in alone for text in getattr(other, name)}
        yield from (Harm(word, text) for text in getattr(mixed, name) if text not in usual)


def _order(mixed: FeatureOutcome, alone: Alone) -> Iterator[Harm]:
    order = _firsts(mixed)
    orders = [[job for job in _firsts(other) if job in order] for other in alone]
    shared = [[job for job in order if job in other] for other in orders]
    if all(mine != other for mine, other in zip(shared, orders, strict=True)):
        yield Harm("other order", f"jobs are run in the order {', '.join(order)} instead of {', '.join(orders[0])}")


def _firsts(outcome: FeatureOutcome) -> list[str]:
    return list(dict.fromkeys(delivery.job for delivery in outcome.deliveries))


def _late(mixed: FeatureOutcome, alone: Alone) -> Iterator[Harm]:
    latest: dict[str, int] = {}
    for other in alone:
        for job, at_ms in _times_of(other).items():
            latest[job] = max(latest.get(job, 0), at_ms)
    for job, at_ms in _times_of(mixed).items():
        if job in latest and at_ms > latest[job] + EARLY_ENOUGH_MS:
            yield Harm("late", f"job {job} is run {at_ms - latest[job]} ms later")


def _early(mixed: FeatureOutcome, alone: Alone) -> Iterator[Harm]:
    """More jobs are handed out up to a step, or one much earlier, than by any version alone."""
    for step in sorted({delivery.step for delivery in mixed.deliveries}):
        most = max(_handed_out(other, step) for other in alone)
        if _handed_out(mixed, step) > most:
            yield Harm("early", f"at step {step}, {_jobs(_handed_out(mixed, step))} run instead of {most}")
    firsts = [_first_times(other) for other in alone]
    for job, at_ms in _first_times(mixed).items():
        if all(job in times and at_ms + EARLY_ENOUGH_MS < times[job] for times in firsts):
            earliest = min(times[job] for times in firsts)
            yield Harm("early", f"job {job} is run {earliest - at_ms} ms earlier")


def _handed_out(outcome: FeatureOutcome, step: int) -> int:
    return sum(delivery.step <= step for delivery in outcome.deliveries)


def _first_times(outcome: FeatureOutcome) -> dict[str, int]:
    return {delivery.job: delivery.at_ms for delivery in reversed(outcome.deliveries)}


def _jobs(number: int) -> str:
    return "1 job has been" if number == 1 else f"{number} jobs have been"


def _times_of(outcome: FeatureOutcome) -> dict[str, int]:
    """When each job was handed out for the last time (ms)."""
    return {delivery.job: delivery.at_ms for delivery in outcome.deliveries}


def _runs(number: int) -> str:
    return f"is run {_times(number)}" if number else "is not run"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")
