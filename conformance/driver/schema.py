"""Generates the JSON Schema and the documented table of operations from `messages.py` and `ops/`.

The schema is for authors of drivers and for validators in other languages. Both files are in the repository:

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

from conformance.driver.messages import PROTOCOL_VERSION, Call, DriverEvent, Hello, Ready, Result
from conformance.driver.ops import REGISTRY, Op, flow, job, library, lifecycle, queue, relay, worker
from conformance.driver.ops.lifecycle import EVENT_ARGS
from conformance.pages.compact_json import compact_json

SCHEMA_FILE = Path(str(files("conformance.driver"))) / "schema" / f"driver-v{PROTOCOL_VERSION}.json"
REFERENCE = "#/$defs/{name}"
PUBLISHED_NAMES = {"DriverEvent": "Event", "MetricsView": "Metrics"}
"""Names in the schema that differ from the class names: the kit has other classes of events and metrics."""

Schema = dict[str, Any]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "driver-operations.md"
BEGIN = "<!-- operations: written by `python -m conformance.driver.schema --write` -->"
END = "<!-- operations: end -->"
ORDER = [module.__name__ for module in (lifecycle, queue, job, flow, worker, relay, library)]
NONE = "-"


def main(arguments: list[str]) -> int:
    """Write or check the generated files; returns the exit code."""
    if arguments == ["--write"]:
        SCHEMA_FILE.parent.mkdir(exist_ok=True)
        SCHEMA_FILE.write_text(schema_text(), "utf-8")
        write_page()
        return 0
    if arguments:
        print("usage: python -m conformance.driver.schema [--write]", file=sys.stderr)
        return 2
    if schema_is_current() and page_is_current():
        return 0
    print("out of date: run `python -m conformance.driver.schema --write`", file=sys.stderr)
    return 1


def build_schema() -> Schema:
    """Build the schema of any line; `operations` and `events` have the types of each name."""
    lines: list[Any] = [Hello, Call, Ready, Result, DriverEvent]
    # Sorted, so that the generated file does not depend on the order of imports.
    ops = [REGISTRY[name] for name in sorted(REGISTRY)]
    answers = [op.answer for op in ops]
    events = list(EVENT_ARGS.values())
    schemas, components = msgspec.json.schema_components([*lines, *ops, *answers, *events], ref_template=REFERENCE)
    remaining = iter(schemas)
    line_schemas = [next(remaining) for _ in lines]
    args_schemas = {op.op: next(remaining) for op in ops}
    answer_schemas = {op.op: next(remaining) for op in ops}
    event_schemas = {name: next(remaining) for name in EVENT_ARGS}
    _depend(components["Call"], "op", args_schemas)
    _depend(components["DriverEvent"], "name", event_schemas)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:bullmq-conformance:driver:v{PROTOCOL_VERSION}",
        "title": f"A line of the BullMQ conformance driver protocol, version {PROTOCOL_VERSION}",
        "oneOf": line_schemas,
        "$defs": {
            **{name: components[name] for name in sorted(components, key=lambda name: PUBLISHED_NAMES.get(name, name))},
            "KitLine": {"description": "A line from the kit to a driver.", "oneOf": line_schemas[:2]},
            "DriverLine": {"description": "A line from a driver to the kit.", "oneOf": line_schemas[2:]},
        },
        "operations": {
            op.op: {"on": op.on, "args": args_schemas[op.op], "answer": answer_schemas[op.op]} for op in ops
        },
        "events": event_schemas,
    }
    return _with_published_names(schema)


def _with_published_names(schema: Schema) -> Schema:
    text = json.dumps(schema)
    for name, published in PUBLISHED_NAMES.items():
        text = text.replace(f'"{name}"', f'"{published}"').replace(f'/{name}"', f'/{published}"')
    renamed: Schema = json.loads(text)
    return renamed


def schema_text() -> str:
    """Return the content of the schema file."""
    return compact_json(build_schema(), width=400)


def schema_is_current() -> bool:
    """Whether the file in the repository is up to date."""
    return SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text("utf-8") == schema_text()


def _depend(line: Schema, field: str, by_name: dict[str, Schema]) -> None:
    """Make the `args` of a line depend on its operation or event name. Unknown names may have any `args`."""
    line["allOf"] = [
        {"if": {"properties": {field: {"const": name}}}, "then": {"properties": {"args": schema}}}
        for name, schema in by_name.items()
    ]


def operations_table() -> str:
    """Return the table as Markdown: operation, handle, arguments, answer, meaning."""
    ops = sorted(REGISTRY.values(), key=lambda op: ORDER.index(op.__module__))
    rows = [_row(op) for op in ops]
    return "\n".join(["| operation | on | arguments | answer | meaning |", "|---|---|---|---|---|", *rows])


def page_is_current() -> bool:
    """Whether the table in the page is up to date."""
    return PAGE.is_file() and _with_table(PAGE.read_text("utf-8")) == PAGE.read_text("utf-8")


def write_page() -> None:
    """Replace the table in the page."""
    PAGE.write_text(_with_table(PAGE.read_text("utf-8")), "utf-8")


def _with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{operations_table()}\n{END}{after}"


def _row(op: type[Op[Any]]) -> str:
    arguments = ", ".join(_field(field) for field in msgspec.structs.fields(op))
    answer = ", ".join(f"`{name}`" for name in op.answer.__struct_fields__)
    meaning = (op.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    return f"| `{op.op}` | {op.on} | {arguments or NONE} | {answer or NONE} | {meaning} |"


def _field(field: msgspec.structs.FieldInfo) -> str:
    """Mark an argument that may be null or at its default; the kit always sends it."""
    return f"`{field.encode_name}`" if field.required else f"`{field.encode_name}`?"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
