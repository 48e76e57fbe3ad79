"""Features made for a comparison: an option that only one release declares, and calls without options. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY
from conformance.versions.mixed.features import HOUR_MS, Feature
from conformance.versions.mixed.steps import (
    Ask,
    Await,
    Claim,
    Finish,
    Hear,
    Listen,
    Loop,
    Pass,
    Step,
    WorkUntilIdle,
)

PREFIX = "option "
"""The name of the feature for an option is this and the option's name."""

_LARGE = re.compile(r"([A-Z])")
_LITERAL = re.compile(r"'([^']*)'")
_DRAIN = WorkUntilIdle(["worker"])
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


def _while_running(**opts: Any) -> tuple[Step, ...]:
    """Jobs are added before, while and after one of them runs; the first run of one fails."""
    jobs = [Ask(role, "queue.add", {"name": name, "opts": opts}) for role, name in zip("ALAL", "1234", strict=True)]
    roles = {"A": "adder", "L": "latecomer"}
    first, second, third, fourth = (Ask(roles[job.role], job.op, job.args) for job in jobs)
    return first, Claim("holder"), second, third, Finish("holder", "fail"), _DRAIN, fourth, _DRAIN


def _deduplicated(name: str, value: Any) -> Feature:
    return Feature("", _while_running(deduplication={"id": "d", name: value}))


def _added(name: str, value: Any) -> Feature:
    return Feature("", _while_running(**{name: value}))


def _kept(name: str, value: Any) -> Feature:
    return Feature("", _while_running(removeOnComplete={"age": 3600, name: value}, removeOnFail={name: value}))


def _scheduled(name: str, value: Any) -> Feature:
    repeat = {"every": HOUR_MS, name: value}
    made = Ask("scheduler", "queue.upsertJobScheduler", {"id": "s", "repeat": repeat, "name": "tick"})
    return Feature("", (made, _DRAIN, Pass(HOUR_MS), _DRAIN, Pass(HOUR_MS), _DRAIN))


def _retried(name: str, value: Any) -> Feature:
    return Feature("", _while_running(attempts=3, backoff={"type": "fixed", "delay": 1_000, name: value}))


def _working(name: str, value: Any) -> Feature:
    return Feature("", _while_running(attempts=2), options={name: value})


def _retried_by_hand(name: str, value: Any) -> Feature:
    fails = (Claim("holder"), Finish("holder", "fail"))
    added = Ask("adder", "queue.add", {"name": "a", "opts": {"attempts": 2}})
    # An option that is given to the retry is a promise to its caller, and promises are measured by the adder.
    retried = Ask("adder", "job.retry", {"job": "$a", _LARGE.sub(r"_\1", name).lower(): value})
    return Feature("", (added, *fails, *fails, retried, WorkUntilIdle(["worker", "holder"], "fail")))


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
    plain = Ask("adder", "queue.add", {"name": "a"})
    yield Feature(
        "worker and event reader without options",
        (Listen("listener"), Loop("worker"), plain, Hear("listener", "completed"), Await(1)),
    )
    names = [name for name, op in REGISTRY.items() if name.startswith("queue.") and not _needed(op)]
    calls = tuple(Ask("adder", name) for name in names if name not in _NOT_CALLED)
    yield Feature("calls without options", (plain, Ask("adder", "queue.add", {"name": "b"}), *calls, _DRAIN))


def _needed(op: type) -> bool:
    return any(field.required for field in msgspec.structs.fields(op))
