"""The table of operations in `docs/driver-protocol.md`, generated between two markers from `ops/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY, Op, flow, job, lifecycle, queue, worker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "driver-protocol.md"
BEGIN = "<!-- operations: begin; written by `python -m conformance.driver.schema --write` -->"
END = "<!-- operations: end -->"
ORDER = [module.__name__ for module in (lifecycle, queue, job, flow, worker)]
NONE = "-"


def table() -> str:
    """Return the table as Markdown: operation, handle, arguments, answer, meaning."""
    ops = sorted(REGISTRY.values(), key=lambda op: ORDER.index(op.__module__))
    rows = [_row(op) for op in ops]
    return "\n".join(["| operation | on | arguments | answer | meaning |", "|---|---|---|---|---|", *rows])


def is_current() -> bool:
    """Whether the page holds the table that would be generated."""
    return PAGE.is_file() and _with_table(PAGE.read_text("utf-8")) == PAGE.read_text("utf-8")


def write() -> None:
    """Replace the table in the page."""
    PAGE.write_text(_with_table(PAGE.read_text("utf-8")), "utf-8")


def _with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(op: type[Op[Any]]) -> str:
    arguments = ", ".join(_field(field) for field in msgspec.structs.fields(op))
    answer = ", ".join(f"`{name}`" for name in op.answer.__struct_fields__)
    meaning = (op.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    return f"| `{op.op}` | {op.on} | {arguments or NONE} | {answer or NONE} | {meaning} |"


def _field(field: msgspec.structs.FieldInfo) -> str:
    """Mark an argument that may be null or at its default; it is sent all the same."""
    return f"`{field.encode_name}`" if field.required else f"`{field.encode_name}`?"
