"""The driver protocol as one JSON Schema, for authors of drivers and for validators that are not Python.

The file is generated from `messages.py` and `ops/` and kept in the tree:

    python -m conformance.driver.schema            exit code 1 if the file or the table of operations is out of date
    python -m conformance.driver.schema --write    rewrite both
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from conformance.driver import operations_table
from conformance.driver.messages import PROTOCOL_VERSION, Call, Event, Hello, Ready, Result
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.events import EVENT_ARGS

SCHEMA_FILE = Path(str(files("conformance.driver"))) / "schema" / f"driver-v{PROTOCOL_VERSION}.json"
REFERENCE = "#/$defs/{name}"

Schema = dict[str, Any]


def build() -> Schema:
    """Build the schema: any line matches it; `operations` and `events` refer to what belongs to each name."""
    lines: list[Any] = [Hello, Call, Ready, Result, Event]
    ops = [REGISTRY[name] for name in sorted(REGISTRY)]
    answers = [op.answer for op in ops]
    events = list(EVENT_ARGS.values())
    schemas, components = msgspec.json.schema_components([*lines, *ops, *answers, *events], ref_template=REFERENCE)
    found = iter(schemas)
    line_schemas = [next(found) for _ in lines]
    args_schemas = {op.op: next(found) for op in ops}
    answer_schemas = {op.op: next(found) for op in ops}
    event_schemas = {name: next(found) for name in EVENT_ARGS}
    _depend(components["Call"], "op", args_schemas)
    _depend(components["Event"], "name", event_schemas)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:bullmq-conformance:driver:v{PROTOCOL_VERSION}",
        "title": f"A line of the BullMQ conformance driver protocol, version {PROTOCOL_VERSION}",
        "oneOf": line_schemas,
        "$defs": {
            **{name: components[name] for name in sorted(components)},
            "KitLine": {"description": "What a driver reads.", "oneOf": line_schemas[:2]},
            "DriverLine": {"description": "What a driver writes.", "oneOf": line_schemas[2:]},
        },
        "operations": {
            op.op: {"on": op.on, "args": args_schemas[op.op], "answer": answer_schemas[op.op]} for op in ops
        },
        "events": event_schemas,
    }


def text() -> str:
    """Return the content of the schema file."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


def is_current() -> bool:
    """Whether the file in the tree is what would be generated."""
    return SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text("utf-8") == text()


def main(arguments: list[str]) -> int:
    """Write or check the generated files; returns the exit code."""
    if arguments == ["--write"]:
        SCHEMA_FILE.parent.mkdir(exist_ok=True)
        SCHEMA_FILE.write_text(text(), "utf-8")
        operations_table.write()
        return 0
    if arguments:
        print("usage: python -m conformance.driver.schema [--write]", file=sys.stderr)
        return 2
    if is_current() and operations_table.is_current():
        return 0
    print("out of date: run `python -m conformance.driver.schema --write`", file=sys.stderr)
    return 1


def _depend(line: Schema, field: str, by_name: dict[str, Schema]) -> None:
    """Let the `args` of a line depend on its operation or event name; unknown names stay free."""
    line["allOf"] = [
        {"if": {"properties": {field: {"const": name}}}, "then": {"properties": {"args": schema}}}
        for name, schema in by_name.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
