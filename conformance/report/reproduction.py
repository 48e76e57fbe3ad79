"""Reproduction of a finding without the kit: a script in the client's language, or its calls and redis-cli commands.

The client's `reproduction.toml` (`conformance.gate.client_language`) has a template for each operation. For the rest,
a program sends the calls to the client's driver; scenarios with a second client get words.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from conformance.findings import PREFIX, Finding, RedisReading
from conformance.gate.calls import calls_of_loops, defaults_of
from conformance.gate.client_language import ANY, FILE, ClientLanguage, read_language
from conformance.gate.records import RunHeader, StepRecord
from conformance.pages.page import asset
from conformance.pages.text import visible
from conformance.report.causes import Cause
from conformance.report.literals import LITERALS, NotWritable
from conformance.report.steps import step_line, steps_of_client

REPRODUCTION_PREFIX = "bullmq-repro"
"""Prefix of all keys of a reproduction, so that it can run on a shared Redis."""

LONGEST_WAIT_MS = 60_000
"""Longest time that a script waits for a step."""

SETTLE_SECONDS = 2
"""How long a script lets a worker run if the scenario waited for something."""

_ID = re.compile(r'"id": "([^"]+)"')
"""An id in a recorded answer."""

_ITERATION_ID = re.compile(r'"id": ?"(?P<id>repeat:[^"]+:\d{12,14})"')
"""The id of a scheduler's job in a recorded answer. It contains the time of the run, so it differs each time."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Instructions for a cause. `look`: shell commands that read Redis afterwards, empty if the script does that.

    `obstacle`: why `script` is not a program but text and commands; `prepare` and `run` are empty then.
    """

    language: str
    file: str
    prepare: tuple[str, ...]
    run: str
    script: str
    look: str = ""
    obstacle: str = ""


@dataclass(frozen=True)
class _IdOfAnswer:
    """The job id in the answer of an earlier step."""

    number: int


def reproduction_of(cause: Cause, header: RunHeader) -> Reproduction:
    """Return how to reproduce a cause without the kit."""
    why = ""
    for templates in filter(None, (header.reproduction, asset("conformance.report", "driver.toml"))):
        try:
            return _in_language(cause, header, _language_in(templates))
        # The run has checked the file, but a run file may come from another version of the kit.
        except (NotWritable, ValueError) as obstacle:
            why = str(obstacle)
    return in_words(cause, header, why)


_language_in = lru_cache(maxsize=8)(read_language)


# In the client's own language.


def _in_language(cause: Cause, header: RunHeader, language: ClientLanguage) -> Reproduction:
    taken = calls_of_loops(steps_of_client(cause.example), header.client)
    _refuse_undeclared(taken, header)
    writer = _Writer(language)
    steps = [line for number, step in enumerate(taken, start=1) for line in writer.lines(number, step)]
    if not steps:
        raise NotWritable("no step was recorded")
    if _opens_loop(taken[-1]) or taken[-1].do == "resolve":
        # The failure comes from what the client does next: no step of the scenario has waited for that.
        steps.append(writer.pause(writer.settling_ms() / 1000))
    client = header.client
    operations = [step.do for step in taken]
    command = visible(shlex.join(client.command), keep_newlines=False)
    install = {
        "version": client.version,
        "packages": client.packages,
        "prefix": REPRODUCTION_PREFIX,
        "command": command,
    }
    script = writer.render(
        language.script.lstrip("\n"),
        remarks=[visible(line, keep_newlines=False) for line in remarks(cause, header)],
        steps=steps,
        statement=statement_of(cause.finding),
        readings=[_own(reading) for reading in cause.finding.redis],
        traffic=cause.finding.source == "traffic",
        processors=any(_opens_loop(step) for step in taken),
        uses=lambda *names: any(operation.startswith(names) for operation in operations),
        **install,
    )
    return Reproduction(
        language=language.language,
        file=language.file,
        prepare=tuple(writer.render(line, **install) for line in language.prepare),
        run=writer.render(language.run, **install),
        script=script.rstrip() + "\n",
        look="" if language.looks_itself else "\n".join(_look(cause.finding)),
    )


def _refuse_undeclared(taken: list[StepRecord], header: RunHeader) -> None:
    """Raises NotWritable for a step that the driver does not declare: a user of the client could not call it."""
    for step in taken:
        if step.by not in ("kit", "oracle", "partner") and (step.stand_in or step.do not in header.client.ops):
            raise NotWritable(f"the driver does not declare `{step.do}`, so Node.js does it")


class _Sandbox(ImmutableSandboxedEnvironment):
    """The environment of templates. They come from a run file, which may be a stranger's."""

    # A product of two short operands can fill the memory.
    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002  (Jinja's signature)
        """Raises NotWritable."""
        raise NotWritable(f"the operator {operator} is not allowed in `{FILE}`")


class _Writer:
    """Writes steps in one language."""

    def __init__(self, language: ClientLanguage) -> None:
        self.language = language
        # Strict: a template that lacks a value would write a script with a hole.
        self.environment = _Sandbox(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
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
        """Fill in a template. Raises NotWritable if that is not possible."""
        try:
            return self.environment.from_string(template).render(**values)
        # A template may do anything that Jinja can, so any of Python's usual errors can come out of it.
        except (TemplateError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise NotWritable(f"a template of `{FILE}` cannot be filled in ({error})") from error

    def lines(self, number: int, step: StepRecord) -> Iterator[str]:
        """Yield the lines of one step. Raises NotWritable."""
        if step.by in ("oracle", "partner"):
            raise NotWritable("Node.js takes part in it")
        if step.by == "kit":
            yield self._of_kit(step)
            return
        args = self._with_ids_of_answers(_own_prefix({**defaults_of(step), **step.args}))
        ids = _ID.findall(step.client)
        values = {**args, "do": step.do, "args": args, "ids": ids, "on": variable(step.on)}
        if step.do == "open":
            self._roles[step.on] = step.args["role"]
            if step.args.get("queue", "") is None:
                raise NotWritable("the queue of its worker was not recorded")
            yield f"{self.language.step.get('declare', '')}{variable(step.on)} = {self._open(step, values)}"
            return
        template = self.language.calls.get(step.do) or self.language.calls.get(ANY)
        if template is None:
            raise NotWritable(f"the client's `{FILE}` has no line for `{step.do}`")
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
            raise NotWritable("an id contains the time of the run")
        return {**args, **{name: _IdOfAnswer(self._answered[value]) for name, value in referenced.items()}}

    def _id_of(self, answer: _IdOfAnswer) -> str:
        template = self.language.step.get("answered")
        if template is None:
            raise NotWritable("an id comes from an earlier answer")
        return self.render(template, number=answer.number)

    def _open(self, step: StepRecord, values: dict[str, Any]) -> str:
        template = self.language.open.get(step.args["role"]) or self.language.open.get(ANY)
        if template is None:
            raise NotWritable(f"the client's `{FILE}` has no line for a {step.args['role']}")
        return self.render(template, **values)

    def _of_kit(self, step: StepRecord) -> str:
        if step.do == "redis":
            return self.render(self.language.redis, words=_own_prefix(step.args["words"]))
        if step.do == "network":
            raise NotWritable("the kit disturbs the network")
        milliseconds = step.args["ms"] if step.do == "clock" else self.settling_ms()
        if milliseconds > LONGEST_WAIT_MS:
            raise NotWritable(f"{milliseconds} ms pass in it")
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
        at_end=_own_prefix(reading.at_end),
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
        raise NotWritable("a text is not JSON, or the run file has only its start") from error


# In words.


def in_words(cause: Cause, header: RunHeader, obstacle: str) -> Reproduction:
    """Return the calls as text, and the commands that read Redis, as shell lines. `obstacle`: see Reproduction."""
    lines = [f"# {visible(line, keep_newlines=False)}" for line in remarks(cause, header)]
    lines += ["#", f"# With your client, on the key prefix {REPRODUCTION_PREFIX}:"]
    lines += [
        f"# {number:3} {visible(_own_prefix(step_line(step)), keep_newlines=False)}"
        for number, step in enumerate(steps_of_client(cause.example), start=1)
    ]
    lines += _look(cause.finding)
    script = "\n".join(lines) + "\n"
    return Reproduction(language="sh", file="reproduction.sh", prepare=(), run="", script=script, obstacle=obstacle)


def _look(finding: Finding) -> Iterator[str]:
    """Yield the commands that read Redis, with the replies of the run as comments."""
    statement = statement_of(finding)
    if statement:
        yield from ("#", *(f"# {visible(line, keep_newlines=False)}" for line in statement.strip().splitlines()))
    for reading in map(_own, finding.redis):
        yield ""
        yield f"redis-cli {shlex.join(visible(word, keep_newlines=False) for word in reading.command)}"
        sides = [("expected", reading.expected), ("Node", reading.at_end), ("actual", reading.actual)]
        yield from (f"#   {side:8}  {visible(text, keep_newlines=False)}" for side, text in sides if text)


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
