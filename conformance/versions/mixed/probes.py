"""Features made for a comparison: an option that only one release declares, and calls without options. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY, job
from conformance.steps.shapes import CallStep, ClockStep, DrainStep, FeatureStep, WaitStep, opening
from conformance.steps.words import QueueWords, WorkerWords
from conformance.versions.mixed.features import HOUR_MS, Feature
from conformance.versions.mixed.stage import MAIN

PREFIX = "option "
"""The name of the feature for an option is this and the option's name."""

_LARGE = re.compile(r"([A-Z])")
_LITERAL = re.compile(r"'([^']*)'")
_DRAIN = DrainStep(("worker",))
_ADDER, _LATECOMER, _HOLDER = QueueWords("adder"), QueueWords("latecomer"), WorkerWords("holder")
_FAILS = (_HOLDER.claim(), _HOLDER.fail())
_NOT_CALLED = frozenset({"queue.refuses", "queue.obliterate"})
"""An operation of the kit itself, and one that leaves nothing to read."""


def sample_value(type_text: str) -> Any:
    """A value of a TypeScript type, None if there is none that is certain to be valid."""
    literals = _LITERAL.findall(type_text)
    words = {word.strip() for word in type_text.split("|")}
    if "boolean" in words:
        return True
    if "number" in words:
        return 1
    if literals:
        return literals[0]
    return "x" if "string" in words else None


def _while_running(**opts: Any) -> tuple[FeatureStep, ...]:
    """Jobs are added before, while and after one of them runs; the first run of one fails."""
    first, third = (_ADDER.add(name, **opts) for name in "13")
    second, fourth = (_LATECOMER.add(name, **opts) for name in "24")
    return first, _HOLDER.claim(), second, third, _HOLDER.fail(), _DRAIN, fourth, _DRAIN


def _deduplicated(name: str, value: Any) -> Feature:
    return Feature("", _while_running(deduplication={"id": "d", name: value}))


def _added(name: str, value: Any) -> Feature:
    return Feature("", _while_running(**{name: value}))


def _kept(name: str, value: Any) -> Feature:
    return Feature("", _while_running(removeOnComplete={"age": 3600, name: value}, removeOnFail={name: value}))


def _scheduled(name: str, value: Any) -> Feature:
    repeat = {"every": HOUR_MS, name: value}
    made = QueueWords("scheduler").schedule("s", repeat, name="tick")
    return Feature("", (made, *(_DRAIN, ClockStep(HOUR_MS)) * 2, _DRAIN))


def _retried(name: str, value: Any) -> Feature:
    return Feature("", _while_running(attempts=3, backoff={"type": "fixed", "delay": 1_000, name: value}))


def _working(name: str, value: Any) -> Feature:
    return Feature("", _while_running(attempts=2), options={name: value})


def _retried_by_hand(name: str, value: Any) -> Feature:
    # An option that is given to the retry is a promise to its caller, and promises are measured by the adder.
    retried = _ADDER.call(msgspec.convert({"job": "1", _LARGE.sub(r"_\1", name).lower(): value}, job.Retry))
    steps = (_ADDER.add("a", attempts=2), *_FAILS * 2, retried, DrainStep(("worker", "holder"), "fail"))
    return Feature("", steps)


_MAKERS: Mapping[str, Callable[[str, Any], Feature]] = {
    "DeduplicationOptions": _deduplicated,
    **dict.fromkeys(("DefaultJobOptions", "BaseJobOptions", "CompressableJobOptions", "JobsOptions"), _added),
    "KeepJobs": _kept,
    **dict.fromkeys(("RepeatOptions", "RepeatableOptions"), _scheduled),
    "BackoffOptions": _retried,
    "WorkerOptions": _working,
    "RetryOptions": _retried_by_hand,
}
"""How an option of a type is given."""


def option_feature(option: str, type_text: str) -> Feature | None:
    """A feature in which both releases use the option (`Type.name`); None if the kit cannot give it."""
    owner, _, name = option.partition(".")
    value = sample_value(type_text)
    if owner not in _MAKERS or value is None or "." in name:
        return None
    made = _MAKERS[owner](name, value)
    return Feature(f"{PREFIX}{option}", made.steps, options=made.options)


def default_features() -> Iterator[Feature]:
    """Calls and workers without options: the release chooses all values."""
    opened = (opening("listener", "events", MAIN), opening("worker", "worker", MAIN, "noop"))
    ended = (WaitStep(event="completed", on="listener"), WaitStep(1))
    yield Feature("worker and event reader without options", (*opened, _ADDER.add("a"), *ended))
    ops = [op for name, op in REGISTRY.items() if name.startswith("queue.") and name not in _NOT_CALLED]
    calls = [CallStep("adder", op()) for op in ops if not _needed(op)]
    yield Feature("calls without options", (_ADDER.add("a"), _ADDER.add("b"), *calls, _DRAIN))


def _needed(op: type) -> bool:
    return any(field.required for field in msgspec.structs.fields(op))
