"""Unusual JSON that is changed, refused or lost on its way."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.jobs import job as job_module
from conformance.reference_impl.jobs.record import JobRecord


def _edit_data(damage: Damage, change: Callable[[Any], Any]) -> None:
    """Change the data of every job that is read."""

    def broken(read: Function) -> Function:
        def read_record(fields: Any, job_id: str) -> JobRecord:
            record: JobRecord = read(fields, job_id)
            record.data = change(record.data)
            return record

        return read_record

    damage.around(job_module, "read_record", broken)


@mutant("edge.empty-is-nothing", kills=("edge.json-round-trip",))
def empty_is_nothing(damage: Damage) -> None:
    """Data that is empty, zero or false is read as an empty object."""
    _edit_data(damage, lambda data: data or {})


@mutant("edge.dangerous-keys-dropped", kills=("edge.json-round-trip",))
def dangerous_keys_dropped(damage: Damage) -> None:
    """A key that means something in JavaScript is left out."""
    _edit_data(
        damage,
        lambda data: {key: data[key] for key in data if key != "__proto__"} if isinstance(data, dict) else data,
    )


@mutant("edge.keys-as-numbers", kills=("edge.json-round-trip",))
def keys_as_numbers(damage: Damage) -> None:
    """Keys that look like whole numbers are read as numbers."""
    _edit_data(
        damage,
        lambda data: (
            {str(int(key)) if key.isdigit() else key: data[key] for key in data} if isinstance(data, dict) else data
        ),
    )


@mutant("edge.first-key-wins", kills=("edge.json-round-trip",))
def first_key_wins(damage: Damage) -> None:
    """Of a key that is there twice the first value counts."""
    first_wins = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)))

    def parse(text: str) -> Any:
        return first_wins.decode(text)

    damage.replace(js_json, "parse", parse)


@mutant("edge.lone-surrogates-replaced", kills=("edge.json-round-trip",))
def lone_surrogates_replaced(damage: Damage) -> None:
    """Half a surrogate pair is written as the replacement character."""
    damage.around(js_json, "js_string", lambda healthy: lambda text: healthy(js_json.well_formed(text)))


@mutant("edge.infinity-written", kills=("edge.numbers",))
def infinity_written(damage: Damage) -> None:
    """A number beyond all doubles is written as `Infinity`."""

    def broken(write: Function) -> Function:
        def js_number(value: float) -> str:
            text: str = write(value)
            return "Infinity" if text == "null" else text

        return js_number

    damage.around(js_json, "js_number", broken)


@mutant("edge.single-precision", kills=("edge.numbers",))
def single_precision(damage: Damage) -> None:
    """Fractions are kept with 24 bits only."""
    damage.around(js_json, "js_number", lambda healthy: lambda value: healthy(_rounded(value)))


def _rounded(value: float) -> float:
    if isinstance(value, int) or not 1e-3 < abs(value) < 1e3:
        return value
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


@mutant("edge.depth-limited", kills=("edge.nesting",))
def depth_limited(damage: Damage) -> None:
    """A result of more than a hundred levels is stored as null."""

    def broken(stringify: Function) -> Function:
        def stringify_flat(value: Any) -> str:
            text: str = stringify(value)
            return text if max(text.count("["), text.count("{")) <= 100 else "null"

        return stringify_flat

    damage.around(js_json, "stringify", broken)
