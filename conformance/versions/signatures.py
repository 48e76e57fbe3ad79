"""How the scripts of a version are called, read from its package: how many KEYS and ARGV each takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from conformance.protocol.script_versions import scripts_of
from conformance.protocol.versions import in_range
from conformance.upstream.manifest import RawScript
from conformance.versions.changes import ScriptCall, ScriptChange

_ARGUMENT = re.compile(r"ARGV\[\s*(\d+)\s*\]")
_ALL_ARGUMENTS = re.compile(r"#ARGV|(?<!cmsgpack\.)\bunpack\(\s*ARGV\s*[,)]|ARGV\[\s*[a-zA-Z_]|\bipairs\(\s*ARGV\b")
"""Ways to read arguments whose number the script does not know."""

FIRST_DESCRIBED = "5.62.0"
"""The oldest version whose scripts `conformance/protocol` describes; before it, they are only counted."""


def call_of(name: str, script: RawScript, version: str) -> ScriptCall:
    """How a script is called; named as far as the kit's own table of that version agrees with what the script reads."""
    numbers = [int(number) for number in _ARGUMENT.findall(script.text)]
    described = scripts_of(version).signatures.get(name) if in_range(version, f">={FIRST_DESCRIBED}") else None
    known = described if described is not None and len(described.keys) == script.keys else None
    return ScriptCall(
        keys=script.keys,
        args=max(numbers, default=0),
        more=bool(_ALL_ARGUMENTS.search(script.text)),
        key_names=list(known.keys) if known else [],
        arg_kinds=list(known.args) if known else [],
    )


@dataclass(frozen=True)
class ScriptSign:
    """One change of one script: it is called as in the newer version, there or gone; `change` has both calls."""

    name: str
    keys: int | None
    args: int | None

    def holds(self, scripts: Mapping[str, RawScript], version: str) -> bool:
        """Whether the script is called so in a version."""
        script = scripts.get(self.name)
        if script is None or self.keys is None:
            return script is None and self.keys is None
        call = call_of(self.name, script, version)
        return (call.keys, call.args) == (self.keys, self.args)


def changed_calls(
    before: Mapping[str, RawScript], older: str, after: Mapping[str, RawScript], newer: str
) -> Iterator[tuple[ScriptSign, ScriptChange]]:
    """The scripts that are called otherwise, new or gone, by name."""
    for name in sorted(before.keys() | after.keys()):
        was = call_of(name, before[name], older) if name in before else None
        now = call_of(name, after[name], newer) if name in after else None
        if was is None or now is None or (was.keys, was.args, was.more) != (now.keys, now.args, now.more):
            sign = ScriptSign(name, now.keys if now else None, now.args if now else None)
            yield sign, ScriptChange(name=name, before=was, after=now)


def other_texts(before: Mapping[str, RawScript], after: Mapping[str, RawScript], besides: Collection[str]) -> list[str]:
    """Names of the scripts that both have, with another text, without those whose call has changed."""
    both = (before.keys() & after.keys()) - set(besides)
    return sorted(name for name in both if before[name].text != after[name].text)
