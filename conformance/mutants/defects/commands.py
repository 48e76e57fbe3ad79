"""Mutants that filter the commands of scripts: the rows of `commands.toml`."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import msgspec

from conformance.mutants.damage import Damage
from conformance.mutants.registry import MUTANTS, Inflict, Mutant

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Row(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kills: _Text
    what: _Text
    commands: _Text
    by: str = ""


def _filtering(scripts: str, body: str) -> Inflict:
    def inflict(damage: Damage) -> None:
        for pattern in scripts.split():
            damage.commands(pattern, body)

    return inflict


def _register(table: bytes) -> None:
    for scripts, rows in msgspec.toml.decode(table, type=dict[str, dict[str, _Row]]).items():
        for name, row in rows.items():
            kills, by = tuple(row.kills.split()), tuple(row.by.split())
            inflict = _filtering(scripts, row.commands)
            MUTANTS.add(name, Mutant(name, row.what, kills, inflict, by=by))


_register((files("conformance.mutants.defects") / "commands.toml").read_bytes())
