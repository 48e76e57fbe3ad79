"""A finding shown without the kit: a script in the client's own language, or its calls in words and plain redis-cli.

How a client's user writes each operation stands in the client's folder, in `reproduction.toml`. A client that has none,
and a scenario that needs more than one client, get the words.
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
"""Keys of a reproduction begin so: it can be run on a Redis that others use, too."""

LONGEST_WAIT_MS = 60_000
"""A script does not wait longer than this for the time of a step to pass."""

SETTLE_SECONDS = 2
"""How long a script lets a worker go on where the scenario waited for something."""

_ITERATION_ID = re.compile(r'"id": ?"(?P<id>repeat:[^"]+:\d{12,14})"')
"""The id of a scheduler's job in a recorded answer. It contains the time of the run, and so is another each time."""

FOLDERS: Mapping[str, str] = {"node": "conformance.node_harness", "reference": "conformance.reference_impl"}
"""Packages that hold `reproduction.toml`, where that is no folder of `conformance/clients`."""


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
    """What to do by hand. `prepare` and `run` are empty where `script` is no program but words and commands."""

    language: str
    file: str
    prepare: tuple[str, ...]
    run: str
    script: str


@dataclass(frozen=True)
class _IdOfAnswer:
    """The id of the job that a step of the script was answered with."""

    number: int


class NotWritable(Exception):
    """A step that the client's folder does not say how to write, or that no script can do."""


def reproduction_of(cause: Cause, header: RunHeader) -> Reproduction:
    """How anybody can see this cause without the kit."""
    language = language_of(header.client.folder)
    if language is not None:
        try:
            return _in_language(cause, header, language)
        except NotWritable:
            pass
    return in_words(cause, header)


@lru_cache(maxsize=8)
def language_of(folder: str) -> ClientLanguage | None:
    """How the users of a client that comes with the kit write its operations; None for any other client."""
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
    if _works_by_itself(taken[-1]):
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
        processors=any(_works_by_itself(step) for step in taken),
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
        """How long after the step before the last of the delayed jobs is due."""

    def render(self, template: str, **values: Any) -> str:
        """Fill a template in. Raises NotWritable where it does not know what is asked of it."""
        try:
            return self.environment.from_string(template).render(**values)
        except (UndefinedError, KeyError, TypeError) as error:
            raise NotWritable(str(error)) from error

    def lines(self, number: int, step: StepRecord) -> Iterator[str]:
        """The lines of one step. Raises NotWritable."""
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
        """The arguments, with those ids that only the answer of an earlier step can tell. Raises NotWritable."""
        told = {name: value for name, value in args.items() if isinstance(value, str) and value in self._answered}
        others = json.dumps([value for name, value in args.items() if name not in told])
        if any(known in others for known in self._answered):
            raise NotWritable("an id with the time of the run in it")
        return {**args, **{name: _IdOfAnswer(self._answered[value]) for name, value in told.items()}}

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
        """How long a worker is let go on where the scenario waited for something: also for a job that is due later."""
        settling = SETTLE_SECONDS * 1000.0
        return settling + self._due_ms if settling + self._due_ms <= LONGEST_WAIT_MS else settling

    def pause(self, seconds: float) -> str:
        """The line that lets time pass."""
        return self.render(self.language.start, seconds=seconds)


def _delay_ms(step: StepRecord) -> float:
    """For how long the step puts a job off; 0 where it does not."""
    options = step.args.get("opts")
    delay = options.get("delay") if isinstance(options, dict) else None
    return delay if isinstance(delay, int | float) and not isinstance(delay, bool) else 0.0


def _works_by_itself(step: StepRecord) -> bool:
    """Whether the step opens a worker that fetches jobs without being told to."""
    return step.args.get("processor") not in (None, "manual")


def variable(handle: str) -> str:
    """A handle's name as the name of a variable."""
    return handle.replace("-", "_")


def _own(reading: RedisReading) -> RedisReading:
    return RedisReading(
        command=_own_prefix(reading.command),
        expected=_own_prefix(reading.expected),
        actual=_own_prefix(reading.actual),
    )


def _own_prefix(value: Any) -> Any:
    """The value with the prefix of reproductions where a participant's own one was."""
    if isinstance(value, str):
        return value.replace(PREFIX, REPRODUCTION_PREFIX)
    if isinstance(value, dict):
        return {_own_prefix(key): _own_prefix(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_own_prefix(item) for item in value]
    return value


def flow_tree(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node of the driver protocol as FlowProducer takes it."""
    return {
        "name": node["name"],
        "queueName": node["queue"],
        "data": json.loads(node["data_raw"]),
        "opts": node["opts"],
        "children": [flow_tree(child) for child in node["children"]],
    }


def _parsed(text: str, literal: Callable[[Any], str]) -> str:
    """JSON text as a literal of its value. Raises NotWritable for a value that has no literal."""
    try:
        return literal(json.loads(text))
    except ValueError as error:
        raise NotWritable(f"{text!r} is no JSON") from error


def python_literal(value: Any) -> str:
    """A JSON value in Python."""
    _refuse_infinite(value)
    return ascii(msgspec.to_builtins(value))


def javascript_literal(value: Any) -> str:
    """A JSON value in JavaScript."""
    _refuse_infinite(value)
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True)


def rust_literal(value: Any) -> str:
    """The JSON text of a value as a raw string in Rust, for a program that reads it with serde. `#` would end it."""
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
    """The calls in words, and the commands that read Redis, as lines of a shell."""
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
    """What a reader of the script has to know first."""
    return [cause.title, f"{header.client.text}, compared with {oracle_text(header)}"]


def oracle_text(header: RunHeader) -> str:
    """What it was compared with."""
    return f"Node.js BullMQ {header.oracle.version} on Redis {header.redis.version}"


def statement_of(finding: Finding) -> str:
    """What is expected and what was found, where one place in Redis does not show it."""
    if finding.source == "snapshot" and len(finding.redis) == 1:
        return ""
    sides = f"  expected  {finding.expected}\n  found     {finding.actual}"
    return "\n" + str(_own_prefix(f"The run recorded: {finding.message}\n{sides}"))
