"""Reproduction of a finding without the kit: a script in the client's language, or its calls and redis-cli commands.

`reproduction.toml` in a client's folder has a template for each operation. Clients without it, and scenarios that need
more than one client, get the calls as text.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined, UndefinedError

from conformance.findings import PREFIX, Finding, RedisReading
from conformance.gate.records import RunHeader, StepRecord
from conformance.pages.text import visible
from conformance.report.causes import Cause
from conformance.report.steps import step_line, steps_of_client

REPRODUCTION_PREFIX = "bullmq-repro"
"""Prefix of all keys of a reproduction, so that it can run on a shared Redis."""

LONGEST_WAIT_MS = 60_000
"""Longest time that a script waits for a step."""

SETTLE_SECONDS = 2
"""How long a script lets a worker run if the scenario waited for something."""

_ITERATION_ID = re.compile(r'"id": ?"(?P<id>repeat:[^"]+:\d{12,14})"')
"""The id of a scheduler's job in a recorded answer. It contains the time of the run, so it differs each time."""

FOLDERS: Mapping[str, str] = {"node": "conformance.node_harness", "reference": "conformance.reference_impl"}
"""Packages with a `reproduction.toml` outside of `conformance/clients`."""


class ClientLanguage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`reproduction.toml`, all of it templates: `calls` by operation, `open` by role, and the script around them.

    `prepare`: shell lines that install the client in an empty folder. `run`: the one that starts the script, saved as
    `file`. `start`: what lets seconds pass, `redis`: what sends a command to Redis. `step`: the `line` of a step, what
    `declare`s a variable, and the id that an earlier step (`number`) was `answered` with.
    """

    language: str
    file: str
    prepare: list[str]
    run: str
    start: str
    redis: str
    script: str
    step: dict[str, str]
    open: dict[str, str]
    calls: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Instructions for a cause. `prepare` and `run` are empty if `script` is not a program but text and commands."""

    language: str
    file: str
    prepare: tuple[str, ...]
    run: str
    script: str


@dataclass(frozen=True)
class _IdOfAnswer:
    """The job id in the answer of an earlier step."""

    number: int


class NotWritable(Exception):
    """A step for which the client's folder has no template, or that a script cannot do."""


def reproduction_of(cause: Cause, header: RunHeader) -> Reproduction:
    """Return how to reproduce a cause without the kit."""
    language = language_of(header.client.folder)
    if language is not None:
        try:
            return _in_language(cause, header, language)
        # A client without a template for one of the steps gets them as text.
        except NotWritable:
            pass
    return in_words(cause, header)


@lru_cache(maxsize=8)
def language_of(folder: str) -> ClientLanguage | None:
    """Return the templates for the operations of one of the kit's clients; None for other clients."""
    # `client@version` has the templates of the client.
    name = folder.partition("@")[0]
    if not name:
        return None
    package = FOLDERS.get(name)
    place = files(package) if package else files("conformance.clients").joinpath(name.replace("-", "_"))
    described = place.joinpath("reproduction.toml")
    if not described.is_file():
        return None
    return msgspec.convert(tomllib.loads(described.read_text("utf-8")), ClientLanguage)


# In the client's own language.


def _in_language(cause: Cause, header: RunHeader, language: ClientLanguage) -> Reproduction:
    writer = _Writer(language)
    taken = steps_of_client(cause.example)
    steps = [line for number, step in enumerate(taken, start=1) for line in writer.lines(number, step)]
    if not steps:
        raise NotWritable("nothing was recorded")
    if _opens_loop(taken[-1]):
        # What is wrong comes from what it does next: no step of the scenario has waited for that.
        steps.append(writer.pause(writer.settling_ms() / 1000))
    client = header.client
    operations = [step.do for step in taken]
    script = writer.render(
        language.script.lstrip("\n"),
        remarks=[visible(line, keep_newlines=False) for line in remarks(cause, header)],
        prefix=REPRODUCTION_PREFIX,
        steps=steps,
        statement=statement_of(cause.finding),
        readings=[_own(reading) for reading in cause.finding.redis],
        traffic=cause.finding.source == "traffic",
        processors=any(_opens_loop(step) for step in taken),
        uses=lambda *names: any(operation.startswith(names) for operation in operations),
    )
    install = {"version": client.version, "packages": client.packages}
    return Reproduction(
        language=language.language,
        file=language.file,
        prepare=tuple(writer.render(line, **install) for line in language.prepare),
        run=language.run,
        script=script.rstrip() + "\n",
    )


class _Writer:
    """Writes steps in one language."""

    def __init__(self, language: ClientLanguage) -> None:
        self.language = language
        # Strict: a template that lacks a value would write a script with a hole.
        self.environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701  (it writes programs, where every text goes through `literal`)
        literal = LITERALS[language.language]
        self.environment.filters["literal"] = lambda value: (
            self._id_of(value) if isinstance(value, _IdOfAnswer) else literal(value)
        )
        self.environment.filters["parsed"] = lambda text: _parsed(text, literal)
        self.environment.filters["flow_tree"] = flow_tree
        self._roles: dict[str, str] = {}
        self._answered: dict[str, int] = {}
        self._due_ms = 0.0
        """Time until the last of the delayed jobs is due, from the previous step on."""

    def render(self, template: str, **values: Any) -> str:
        """Fill in a template. Raises NotWritable if it lacks a value."""
        try:
            return self.environment.from_string(template).render(**values)
        except (UndefinedError, KeyError, TypeError) as error:
            raise NotWritable(str(error)) from error

    def lines(self, number: int, step: StepRecord) -> Iterator[str]:
        """Yield the lines of one step. Raises NotWritable."""
        if step.by in ("oracle", "partner"):
            raise NotWritable("Node takes part")
        if step.by == "kit":
            yield self._of_kit(step)
            return
        values: dict[str, Any] = {**self._with_ids_of_answers(_own_prefix(step.args)), "on": variable(step.on)}
        if step.do == "open":
            self._roles[step.on] = step.args["role"]
            yield f"{self.language.step.get('declare', '')}{variable(step.on)} = {self._open(step, values)}"
            return
        template = self.language.calls.get(step.do)
        if template is None:
            raise NotWritable(step.do)
        if step.on and step.on not in self._roles:
            raise NotWritable(f"the opening of {step.on} was not kept")
        call = self.render(template, **values, role=self._roles.get(step.on, ""))
        self._due_ms = max(self._due_ms, _delay_ms(step))
        self._answered |= {found["id"]: number for found in _ITERATION_ID.finditer(step.client)}
        what = visible(step_line(step), keep_newlines=False)
        yield self.render(self.language.step["line"], number=number, what=_own_prefix(what), call=call)

    def _with_ids_of_answers(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with references for ids that come from earlier answers. Raises NotWritable."""
        referenced = {name: value for name, value in args.items() if isinstance(value, str) and value in self._answered}
        others = json.dumps([value for name, value in args.items() if name not in referenced])
        if any(known in others for known in self._answered):
            raise NotWritable("an id with the time of the run in it")
        return {**args, **{name: _IdOfAnswer(self._answered[value]) for name, value in referenced.items()}}

    def _id_of(self, answer: _IdOfAnswer) -> str:
        template = self.language.step.get("answered")
        if template is None:
            raise NotWritable("the id of an answer")
        return self.render(template, number=answer.number)

    def _open(self, step: StepRecord, values: dict[str, Any]) -> str:
        template = self.language.open.get(step.args["role"])
        if template is None:
            raise NotWritable(f"open {step.args['role']}")
        return self.render(template, **values)

    def _of_kit(self, step: StepRecord) -> str:
        if step.do == "redis":
            return self.render(self.language.redis, words=_own_prefix(step.args["words"]))
        if step.do == "network":
            raise NotWritable("the network is disturbed")
        milliseconds = step.args["ms"] if step.do == "clock" else self.settling_ms()
        if milliseconds > LONGEST_WAIT_MS:
            raise NotWritable(f"{milliseconds} ms pass")
        self._due_ms = max(0.0, self._due_ms - milliseconds)
        return self.pause(milliseconds / 1000)

    def settling_ms(self) -> float:
        """Return how long a worker runs if the scenario waited for something, including until delayed jobs are due."""
        settling = SETTLE_SECONDS * 1000.0
        # Above the limit the script would wait for minutes, so only the usual time counts.
        return settling + self._due_ms if settling + self._due_ms <= LONGEST_WAIT_MS else settling

    def pause(self, seconds: float) -> str:
        """Return the line that waits."""
        return self.render(self.language.start, seconds=seconds)


def _delay_ms(step: StepRecord) -> float:
    """Return the delay of the job that a step adds; 0 without a delay."""
    options = step.args.get("opts")
    delay = options.get("delay") if isinstance(options, dict) else None
    return delay if isinstance(delay, int | float) and not isinstance(delay, bool) else 0.0


def _opens_loop(step: StepRecord) -> bool:
    """Whether the step opens a worker with its own loop."""
    return step.args.get("processor") not in (None, "manual")


def variable(handle: str) -> str:
    """Return a variable name for a handle."""
    return handle.replace("-", "_")


def _own(reading: RedisReading) -> RedisReading:
    return RedisReading(
        command=_own_prefix(reading.command),
        expected=_own_prefix(reading.expected),
        actual=_own_prefix(reading.actual),
    )


def _own_prefix(value: Any) -> Any:
    """Replace a participant's prefix by that of reproductions."""
    if isinstance(value, str):
        return value.replace(PREFIX, REPRODUCTION_PREFIX)
    if isinstance(value, dict):
        return {_own_prefix(key): _own_prefix(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_own_prefix(item) for item in value]
    return value


def flow_tree(node: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a flow node of the driver protocol to an argument of FlowProducer."""
    return {
        "name": node["name"],
        "queueName": node["queue"],
        "data": json.loads(node["data_raw"]),
        "opts": node["opts"],
        "children": [flow_tree(child) for child in node["children"]],
    }


def _parsed(text: str, literal: Callable[[Any], str]) -> str:
    """Return JSON text as a literal of its value. Raises NotWritable if there is none."""
    try:
        return literal(json.loads(text))
    except ValueError as error:
        raise NotWritable(f"{text!r} is not JSON") from error


def python_literal(value: Any) -> str:
    """A JSON value in Python."""
    _refuse_infinite(value)
    return ascii(msgspec.to_builtins(value))


def javascript_literal(value: Any) -> str:
    """A JSON value in JavaScript."""
    _refuse_infinite(value)
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True)


def rust_literal(value: Any) -> str:
    """Return the JSON text of a value as a raw string in Rust, for serde; `"#` would end the string."""
    return f'r#"{javascript_literal(value).replace("#", chr(92) + "u0023")}"#'


def _refuse_infinite(value: Any) -> None:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_infinite(item)
    if isinstance(value, float) and not math.isfinite(value):
        raise NotWritable("a number that JSON does not have")


LITERALS: Mapping[str, Callable[[Any], str]] = {
    "python": python_literal,
    "javascript": javascript_literal,
    "rust": rust_literal,
}

# In words.


def in_words(cause: Cause, header: RunHeader) -> Reproduction:
    """Return the calls as text, and the commands that read Redis, as shell lines."""
    lines = [f"# {visible(line, keep_newlines=False)}" for line in remarks(cause, header)]
    lines += ["#", f"# With your client, on the key prefix {REPRODUCTION_PREFIX}:"]
    lines += [
        f"# {number:3} {visible(_own_prefix(step_line(step)), keep_newlines=False)}"
        for number, step in enumerate(steps_of_client(cause.example), start=1)
    ]
    statement = statement_of(cause.finding)
    if statement:
        lines += ["#", *(f"# {visible(line, keep_newlines=False)}" for line in statement.strip().splitlines())]
    for reading in map(_own, cause.finding.redis):
        lines += ["", f"redis-cli {shlex.join(visible(word, keep_newlines=False) for word in reading.command)}"]
        sides = [("expected", reading.expected), ("actual", reading.actual)]
        lines += [f"#   {side:8}  {visible(text, keep_newlines=False)}" for side, text in sides if text]
    return Reproduction(language="sh", file="reproduction.sh", prepare=(), run="", script="\n".join(lines) + "\n")


def remarks(cause: Cause, header: RunHeader) -> list[str]:
    """Return the comments at the start of the script."""
    return [cause.title, f"{header.client.text}, compared with {oracle_text(header)}"]


def oracle_text(header: RunHeader) -> str:
    """Return the name of the oracle with its version."""
    return f"Node.js BullMQ {header.oracle.version} on Redis {header.redis.version}"


def statement_of(finding: Finding) -> str:
    """Return expected and actual values, for findings that no single place in Redis shows."""
    if finding.source == "snapshot" and len(finding.redis) == 1:
        return ""
    sides = f"  expected  {finding.expected}\n  found     {finding.actual}"
    return "\n" + str(_own_prefix(f"The run recorded: {finding.message}\n{sides}"))
