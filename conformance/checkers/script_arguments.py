"""Keys and arguments of recorded script calls: their places, and the numbers that Lua and Redis can handle. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from conformance.checkers.base import ViolationDetail, is_plausible_ms
from conformance.findings import Severity
from conformance.observe.tap.recording import CommandRecord, short_text
from conformance.protocol.script_versions import ScriptSet
from conformance.protocol.scripts import ScriptSignature

MAX_EXACT = 2**53
"""Lua's numbers are doubles: above this, neighbouring integers become equal."""
LONGEST_BLOCK_S = 3600.0
"""A longer blocking call delays the shutdown of a client; BullMQ waits at most 10 s."""
_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_ADDS = frozenset({"addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob"})
_OPTIONAL_SLOTS = {4: "parent key", 5: "parent dependencies key", 6: "parent", 7: "repeat job key", 8: "dedup key"}
_COMPUTED_BY_SCRIPT = {("addJobScheduler", 6): frozenset({"delay"}), ("updateJobScheduler", 4): frozenset({"delay"})}
"""Numbers in packed arguments that may be NaN, because the script overwrites them."""


def located(command: CommandRecord, part: str, message: str, *, severity: Severity | None = None) -> ViolationDetail:
    """A finding about one command: `call.<script or command>.<part>` at its first key.

    `severity`: only if it differs from that of the check.
    """
    what = command.script or command.name
    key = short_text(command.keys[0]) if command.keys else f"connection {command.connection}"
    said = f"#{command.sequence} {what}: {message}"
    return ViolationDetail(where=f"call.{what}.{part}", key=key, message=said, severity=severity)


def layout_of(call: CommandRecord, scripts: ScriptSet) -> ScriptSignature:
    """How this official script is called."""
    return scripts.signatures[call.script or ""]


# Keys


def base_of(call: CommandRecord, scripts: ScriptSet) -> bytes | None:
    """`PREFIX:QUEUE:` according to most of the KEYS with a fixed name; None if there is no such key."""
    bases = [
        key.removesuffix(name.encode())
        for key, names in zip(call.keys, layout_of(call, scripts).keys, strict=True)
        for name in names.split("|")
        if name and "<" not in name and key.endswith(b":" + name.encode())
    ]
    bases += [
        key
        for key, names in zip(call.keys, layout_of(call, scripts).keys, strict=True)
        if names == "<base>" and key[-1:] == b":"
    ]
    # The majority, so that one wrong key is reported instead of all the right ones.
    return max(bases, key=bases.count) if bases else None


def fits(key: bytes, names: str, base: bytes | None) -> bool:
    """Whether a key is allowed at this place."""
    return any(_fits_one(key, name, base) for name in names.split("|"))


def _fits_one(key: bytes, name: str, base: bytes | None) -> bool:
    if not name:
        return not key
    if base is None and "<" not in name:
        return False  # a correct key with a fixed name would have revealed the base
    if base is None:
        # No key of the call has a fixed name, so only its form can be checked: a prefix, a queue and an id.
        return key.count(b":") >= 2 and key.endswith(name.replace("<job>", "").encode() if "<job>" in name else b"")
    if name == "<base>":
        return key == base
    if not key.startswith(base):
        return False
    rest = key[len(base) :]
    if name == "<any>":
        return bool(rest)
    suffix = name.removeprefix("<job>").encode()
    return rest.endswith(suffix) and len(rest) > len(suffix) if "<job>" in name else rest == name.encode()


def bases_in_arguments(call: CommandRecord, scripts: ScriptSet) -> Iterator[tuple[str, bytes]]:
    """Every `PREFIX:QUEUE:` among the arguments, and its place."""
    for index, (kind, word) in enumerate(kinds(call, scripts), 1):
        if kind == "base":
            yield f"argv[{index}]", word
    if call.script in _ADDS and call.argv:
        packed = unpacked(call.argv[0])
        if isinstance(packed, list) and packed and isinstance(packed[0], str):
            yield "argv[1][1]", packed[0].encode("utf-8", "surrogateescape")


# Arguments


def kinds(call: CommandRecord, scripts: ScriptSet) -> Iterator[tuple[str, bytes]]:
    """Arguments with their kinds; surplus arguments have no kind."""
    layout = layout_of(call, scripts)
    expected = [*layout.args, *(layout.more for _ in call.argv[len(layout.args) :])]
    return zip(expected, call.argv, strict=False)


def too_few(calls: Sequence[CommandRecord], scripts: ScriptSet) -> Iterator[ViolationDetail]:
    """Calls with too few arguments. Missing optional arguments at the end do no harm."""
    for call in calls:
        layout, given = layout_of(call, scripts), len(call.argv)
        if given < len(layout.args):
            severity: Severity | None = None if given < layout.needed else "cosmetic"
            yield located(call, "argv", f"{given} arguments instead of {len(layout.args)}", severity=severity)


def surplus(calls: Sequence[CommandRecord], scripts: ScriptSet) -> Iterator[ViolationDetail]:
    """Calls with arguments that the script does not read."""
    for call in calls:
        layout = layout_of(call, scripts)
        if len(call.argv) > len(layout.args) and not layout.more:
            yield located(call, "argv", f"{len(call.argv)} arguments instead of {len(layout.args)}")


def out_of_range(calls: Sequence[CommandRecord], scripts: ScriptSet) -> Iterator[ViolationDetail]:
    """Arguments, and numbers in packed arguments, that their kind does not allow."""
    for call in calls:
        for index, (kind, word) in enumerate(kinds(call, scripts), 1):
            problem = _problem(kind, word)
            if problem:
                yield located(call, f"argv[{index}]", f"{short_text(word)} {problem}")
            elif kind.startswith("packed") and word:
                allowed = _COMPUTED_BY_SCRIPT.get((call.script or "", index), frozenset())
                for name, number in _bad_numbers(unpacked(word), allowed):
                    yield located(call, f"argv[{index}]", f"{name} is {number}")


def blocking_badly(commands: Sequence[CommandRecord]) -> Iterator[ViolationDetail]:
    """Blocking commands with an invalid or far too long timeout."""
    for command in commands:
        problem = _blocks_badly(command)
        if problem:
            yield located(command, "timeout", problem)


_WORDS = {
    "flag": ({b"", b"0", b"1"}, "is neither 1 nor 0"),
    "push": ({b"LPUSH", b"RPUSH"}, "is neither LPUSH nor RPUSH"),
}
_NUMERIC_KINDS = frozenset({"now", "time", "number", "integer", "count", "duration"})


def _problem(kind: str, word: bytes) -> str:
    """The problem of an argument of this kind; empty if there is none."""
    if kind.endswith("?") and not word:
        return ""
    kind = kind.rstrip("?")
    if kind in _WORDS:
        allowed, problem = _WORDS[kind]
        return "" if word in allowed else problem
    if kind not in _NUMERIC_KINDS:
        return ""
    # `float` also accepts `nan`, `1_0` and spaces.
    if not _NUMBER.fullmatch(word) or not math.isfinite(float(word)):
        return "is not a finite number"
    return "" if kind in {"time", "number"} else _integer_problem(kind, float(word))


def _integer_problem(kind: str, number: float) -> str:
    # Lua would round a larger number without an error.
    if number != int(number) or abs(number) > MAX_EXACT:
        return "is not a whole number that a double can hold"
    if kind == "now":
        return "" if is_plausible_ms(number) else "is not a time in Unix ms"
    return "is too small" if number < {"count": 0, "duration": 1}.get(kind, -MAX_EXACT) else ""


def _bad_numbers(value: Any, allowed: frozenset[str], name: str = "it") -> Iterator[tuple[str, Any]]:
    """Numbers that Lua cannot handle, with their names."""
    if isinstance(value, float) and not math.isfinite(value):
        if name not in allowed:
            yield name, value
    elif isinstance(value, int) and abs(value) > MAX_EXACT:
        yield name, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _bad_numbers(member, allowed, str(key))
    elif isinstance(value, list):
        for index, member in enumerate(value, 1):
            yield from _bad_numbers(member, allowed, f"entry {index}")


def _blocks_badly(command: CommandRecord) -> str:
    args = command.args
    if command.name in {"BZPOPMIN", "BZPOPMAX", "BLPOP", "BRPOP"} and len(args) > 2:
        # 0 is valid in Redis: it blocks without a limit.
        if not _NUMBER.fullmatch(args[-1]) or not 0 <= float(args[-1]) <= LONGEST_BLOCK_S:
            return f"{short_text(args[-1])} is not a time in s from 0 to {LONGEST_BLOCK_S:.0f}"
    elif command.name in {"XREAD", "XREADGROUP"} and command.blocking:
        upper = [word.upper() for word in args]
        after = args[upper.index(b"BLOCK") + 1] if upper.index(b"BLOCK") + 1 < len(args) else b""
        if not after.isdigit() or int(after) > LONGEST_BLOCK_S * 1000:
            return f"{short_text(after)} is not a time in ms from 0 to {LONGEST_BLOCK_S * 1000:.0f}"
    return ""


# Packed arguments


def unpacked(word: bytes) -> Any:
    """The msgpack value of an argument; None if it is not msgpack (or the value is nil)."""
    try:
        return msgpack.unpackb(word, raw=False, strict_map_key=False, unicode_errors="surrogateescape")
    except (ValueError, msgpack.exceptions.UnpackException, msgpack.exceptions.ExtraData):
        return None


def badly_packed(calls: Sequence[CommandRecord], scripts: ScriptSet) -> Iterator[ViolationDetail]:
    """Packed arguments that are not msgpack, and slots of added jobs that must not be empty strings."""
    for call in calls:
        for index, (kind, word) in enumerate(kinds(call, scripts), 1):
            if kind.startswith("packed") and not (kind.endswith("?") and not word):
                clipped = call.clipped  # the recording is incomplete, so the value cannot be judged
                if not clipped and not isinstance(unpacked(word), list | dict):
                    yield located(call, f"argv[{index}]", f"{short_text(word)} is not a msgpack array or map")
        if call.script in _ADDS and call.argv:
            yield from _bad_slots(call, unpacked(call.argv[0]), scripts.slots)


def _bad_slots(call: CommandRecord, slots: Any, most: int) -> Iterator[ViolationDetail]:
    if not isinstance(slots, list):
        return
    # Only the first four (prefix, id, name, timestamp) are needed; the others are optional.
    if not 4 <= len(slots) <= most:
        yield located(call, "argv[1]", f"{len(slots)} entries instead of {most}")
    for index, name in _OPTIONAL_SLOTS.items():
        if index < len(slots) and slots[index] == "":
            yield located(call, f"argv[1][{index + 1}]", f"the {name} is an empty text instead of nil")


__all__ = [
    "badly_packed",
    "base_of",
    "bases_in_arguments",
    "blocking_badly",
    "fits",
    "layout_of",
    "located",
    "out_of_range",
    "surplus",
    "too_few",
    "unpacked",
]
