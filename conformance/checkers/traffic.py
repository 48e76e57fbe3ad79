"""Invariants of the commands that clients send, judged on the recording of a tap. Pure.

The checks also hold for Node.js. They therefore allow:

- keys that scripts build (job hashes, locks, parents) and that are not in KEYS: only the `PREFIX:QUEUE:` in the
  arguments must be that of KEYS, and parents may be in any queue;
- the first EVAL of a script on a connection;
- `NaN` as the delay of a scheduler's iteration, which the script computes;
- any number as a priority or score that the user chose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from conformance.checkers import script_arguments
from conformance.checkers.base import InvariantCheck, ViolationDetail, without_switched_off
from conformance.checkers.script_arguments import base_of, fits, layout_of, located
from conformance.findings import Finding
from conformance.observe.tap.commands import BY_DIGEST, BY_TEXT
from conformance.observe.tap.recording import CommandRecord, short_text
from conformance.protocol.keys import slot_of
from conformance.protocol.script_versions import PINNED_SCRIPTS, ScriptSet

WRITES = frozenset(
    {
        *("APPEND", "COPY", "DECR", "DECRBY", "DEL", "EXPIRE", "EXPIREAT", "GETDEL", "GETEX", "GETSET", "INCR"),
        *("INCRBY", "INCRBYFLOAT", "MOVE", "MSET", "MSETNX", "PERSIST", "PEXPIRE", "PEXPIREAT", "PSETEX", "RENAME"),
        *("RENAMENX", "RESTORE", "SET", "SETBIT", "SETEX", "SETNX", "SETRANGE", "UNLINK"),
        *("HDEL", "HINCRBY", "HINCRBYFLOAT", "HMSET", "HSET", "HSETNX"),
        *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "LINSERT", "LMOVE", "LMPOP", "LPOP", "LPUSH", "LPUSHX"),
        *("LREM", "LSET", "LTRIM", "RPOP", "RPOPLPUSH", "RPUSH", "RPUSHX"),
        *("SADD", "SDIFFSTORE", "SINTERSTORE", "SMOVE", "SPOP", "SREM", "SUNIONSTORE"),
        *("BZMPOP", "BZPOPMAX", "BZPOPMIN", "ZADD", "ZDIFFSTORE", "ZINCRBY", "ZINTERSTORE", "ZMPOP", "ZPOPMAX"),
        *("ZPOPMIN", "ZRANGESTORE", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZUNIONSTORE"),
        *("XACK", "XADD", "XAUTOCLAIM", "XCLAIM", "XDEL", "XGROUP", "XREADGROUP", "XSETID", "XTRIM"),
    }
)
"""Commands of Redis 7 that change keys of the types that a queue uses."""

RUNS_SCRIPTS = BY_TEXT | BY_DIGEST | {"FCALL"}
"""Commands that run a script, which can change any key."""

_BY_NODE = {
    b":meta": frozenset({"HSET", "HMSET", "HDEL"}),
    b":limiter": frozenset({"SET", "DEL"}),
    b":events": frozenset({"XTRIM"}),
    b":marker": frozenset({"BZPOPMIN"}),
    b":logs": frozenset({"DEL", "LTRIM"}),
    b":priority": frozenset({"DEL"}),
}
"""Commands that Node.js sends, by the end of the key."""
_DEDUPLICATION = b":de:"


DANGEROUS = frozenset({"DEBUG", "FLUSHALL", "FLUSHDB", "KEYS", "MONITOR", "SAVE", "SHUTDOWN", "SWAPDB"})
"""Commands that no BullMQ client sends: they destroy foreign data, or block Redis for all clients."""
DANGEROUS_PARTS = frozenset({("CONFIG", b"SET"), ("SCRIPT", b"FLUSH"), ("SCRIPT", b"KILL"), ("CLIENT", b"PAUSE")})


_NUMBER_OF_COMMAND = re.compile(r"#\d+")


class Traffic:
    """Commands in the order of their arrival, and the lookups that checks need.

    `cluster`: sent to a Redis cluster. `scripts`: how the scripts of the oracle's version are called.
    """

    def __init__(
        self, commands: Sequence[CommandRecord], *, cluster: bool, scripts: ScriptSet = PINNED_SCRIPTS
    ) -> None:
        self.scripts = scripts
        self.commands = sorted(commands, key=lambda command: command.sequence)
        self.cluster = cluster

    @cached_property
    def calls(self) -> list[CommandRecord]:
        """Calls of official scripts."""
        return [command for command in self.commands if command.script in self.scripts.signatures]

    @cached_property
    def sound_calls(self) -> list[CommandRecord]:
        """Calls with the right number of keys: only in these each key has its place."""
        return [call for call in self.calls if len(call.keys) == len(layout_of(call, self.scripts).keys)]


def _key_count(traffic: Traffic) -> Iterator[ViolationDetail]:
    """An official script gets exactly its number of KEYS, and the announced number is correct."""
    for command in traffic.commands:
        # A call without a number of keys is refused by Redis itself.
        if command.name not in BY_TEXT | BY_DIGEST or len(command.args) < 3:
            continue
        announced = command.args[2]
        if not announced.isdigit() or int(announced) > len(command.args) - 3:
            yield located(
                command, "keys", f"{short_text(announced)} keys announced, {len(command.args) - 3} words follow"
            )
        elif command.script in traffic.scripts.signatures and int(announced) != len(
            layout_of(command, traffic.scripts).keys
        ):
            yield located(
                command, "keys", f"{int(announced)} keys instead of {len(layout_of(command, traffic.scripts).keys)}"
            )


def _key_names(traffic: Traffic) -> Iterator[ViolationDetail]:
    """Every KEYS entry of an official script is the right key for its place, and all are of one queue."""
    for call in traffic.sound_calls:
        base = base_of(call, traffic.scripts)
        for index, (key, names) in enumerate(zip(call.keys, layout_of(call, traffic.scripts).keys, strict=True), 1):
            if not fits(key, names, base):
                queue = f" of queue {short_text(base)}" if base is not None else ""
                yield located(call, f"keys[{index}]", f"{short_text(key)} is not {names.replace('|', ' or ')}{queue}")


def _undeclared_keys(traffic: Traffic) -> Iterator[ViolationDetail]:
    """The `PREFIX:QUEUE:` from which a script builds further keys is that of its KEYS.

    Further keys are job hashes with their dependent keys, locks, and the keys of the queue. A parent's keys come from
    its own queue, which the job names.
    """
    for call in traffic.sound_calls:
        base = base_of(call, traffic.scripts)
        for place, given in script_arguments.bases_in_arguments(call, traffic.scripts):
            if base is not None and given != base:
                yield located(
                    call, place, f"the script builds keys of {short_text(given)}, KEYS are of {short_text(base)}"
                )


def _argument_count(traffic: Traffic) -> Iterator[ViolationDetail]:
    """An official script gets all arguments that Node.js passes: if one is missing, it may stop half-way or misbehave.

    Some of the last arguments are optional; a call without them is only unusual.
    """
    yield from script_arguments.too_few(traffic.sound_calls, traffic.scripts)


def _surplus_arguments(traffic: Traffic) -> Iterator[ViolationDetail]:
    """An official script gets no arguments that it does not read: they are harmless, but a misunderstanding."""
    yield from script_arguments.surplus(traffic.sound_calls, traffic.scripts)


def _numeric_range(traffic: Traffic) -> Iterator[ViolationDetail]:
    """Numbers are finite and exact in a double, times are in Unix ms, durations and counts are not too small.

    This includes the numbers inside packed arguments, and the timeouts of blocking commands.
    """
    yield from script_arguments.out_of_range(traffic.sound_calls, traffic.scripts)
    yield from script_arguments.blocking_badly(traffic.commands)


def _packed_arguments(traffic: Traffic) -> Iterator[ViolationDetail]:
    """Packed arguments are one msgpack array or map; the optional slots of an added job are nil, not an empty string.

    The script would take an empty string for a key, and add the job to the children in a key named "".
    """
    yield from script_arguments.badly_packed(traffic.sound_calls, traffic.scripts)


def _one_slot(traffic: Traffic) -> Iterator[ViolationDetail]:
    """In a cluster all keys of a command (and of a transaction) belong to one slot. Not judged elsewhere."""
    if not traffic.cluster:
        return
    transactions: dict[tuple[int, int], set[int]] = {}
    for command in traffic.commands:
        slots = {slot_of(key) for key in command.keys if key}
        if len(slots) > 1:
            yield located(command, "keys", f"keys of {len(slots)} slots: {', '.join(map(short_text, command.keys))}")
        # Commands of a transaction are queued one by one, so the slots of all of them have to agree.
        elif command.transaction is not None:
            seen = transactions.setdefault((command.connection, command.transaction), set())
            if slots and seen and slots != seen:
                yield located(command, "keys", "another slot than the commands before it in the transaction")
            seen |= slots


def _eval_twice(traffic: Traffic) -> Iterator[ViolationDetail]:
    """A script's text is sent once per connection; from then on EVALSHA, and one text for each NOSCRIPT.

    A text does not count as sent until its reply arrives, nor if its transaction was discarded.
    """
    known: dict[tuple[int, str], CommandRecord] = {}
    asked_for: Counter[tuple[int, str]] = Counter()
    for command in traffic.commands:
        if command.digest is None:
            if command.name == "SCRIPT" and command.args[1:2] and command.args[1].upper() == b"FLUSH":
                # After a flush, every script is unknown again, so sending its text is right.
                known.clear()
            continue
        place = (command.connection, command.digest)
        # Each NOSCRIPT allows one text: pipelines may get several before the first text is sent.
        if command.reply is not None and command.reply.error_code == "NOSCRIPT":
            asked_for[place] += 1
        elif command.name in BY_TEXT:
            before = known.get(place)
            if asked_for[place]:
                asked_for[place] -= 1
            # A text that was sent before the first reply arrived cannot know that the script is loaded.
            elif before is not None and before.reply is not None and before.reply.at_s <= command.arrived_s:
                text = command.script or f"script {command.digest[:8]}"
                yield located(command, "text", f"the text of {text} was sent by #{before.sequence} already")
            # A refused or unanswered text may not have been loaded.
            if command.fate == "answered":
                known[place] = command


def _dangerous(traffic: Traffic) -> Iterator[ViolationDetail]:
    """A client sends no command that destroys foreign data, or blocks or reconfigures Redis for all clients."""
    for command in traffic.commands:
        # `CONFIG GET` and `SCRIPT LOAD` are harmless, so the second word decides.
        part = (command.name, command.args[1].upper()) if len(command.args) > 1 else None
        if command.name in DANGEROUS or part in DANGEROUS_PARTS:
            yield located(command, "name", " ".join(short_text(word) for word in command.args[:2]))


def _outside_script(traffic: Traffic) -> Iterator[ViolationDetail]:
    """The state of a job changes in scripts only: all keys at once, after the token was compared."""
    for command in traffic.commands:
        if command.name in WRITES:
            for key in command.keys:
                if not _node_does_it(command.name, key):
                    message = f"{command.name} {short_text(key)} changes a queue outside of any script"
                    yield located(command, "name", message)


def _node_does_it(name: str, key: bytes) -> bool:
    """Whether Node.js itself changes such a key with this command.

    Only a script changes all keys of a job at once and compares the token. Outside of scripts Node.js only changes
    settings in `meta`, the limit, the owner of a deduplication key, the length of logs and of the stream, and the
    marker that a blocked worker takes.
    """
    if _DEDUPLICATION in key:
        return name == "DEL"
    return any(key.endswith(end) and name in names for end, names in _BY_NODE.items())


class TrafficCheck(InvariantCheck[Traffic]):
    """A named rule about the commands that a client sends."""

    def finding(self, detail: ViolationDetail) -> Finding:
        """One command that breaks the rule. Ledger rows own single calls, too: `traffic.NAME.SCRIPT`."""
        return msgspec.structs.replace(
            super().finding(detail),
            source="traffic",
            where=f"traffic.{self.name}.{detail.where.removeprefix('call.')}",
            message=f"traffic {self.name}: {detail.message}",
        )


ALL_CHECKS: tuple[TrafficCheck, ...] = (
    TrafficCheck(name="key-count", severity="breaks-others", source="the file names of scripts", predicate=_key_count),
    TrafficCheck(name="key-names", severity="breaks-others", source="classes/scripts.ts", predicate=_key_names),
    TrafficCheck(
        name="undeclared-keys", severity="breaks-others", source="classes/scripts.ts", predicate=_undeclared_keys
    ),
    TrafficCheck(name="one-slot", severity="breaks-others", source="cluster specification", predicate=_one_slot),
    TrafficCheck(
        name="argument-count",
        severity="breaks-others",
        source="classes/scripts.ts",
        predicate=_argument_count,
    ),
    TrafficCheck(
        name="surplus-arguments", severity="cosmetic", source="classes/scripts.ts", predicate=_surplus_arguments
    ),
    TrafficCheck(
        name="numeric-range",
        severity="breaks-others",
        source="classes/scripts.ts",
        predicate=_numeric_range,
    ),
    TrafficCheck(
        name="packed-arguments",
        severity="breaks-others",
        source="classes/scripts.ts",
        predicate=_packed_arguments,
    ),
    TrafficCheck(name="eval-twice", severity="wrong-behaviour", source="classes/scripts.ts", predicate=_eval_twice),
    TrafficCheck(
        name="outside-script",
        severity="wrong-behaviour",
        source="the commands that Node sends",
        predicate=_outside_script,
    ),
    TrafficCheck(name="dangerous-commands", severity="breaks-others", source="Redis commands", predicate=_dangerous),
)
"""Every check, in the order in which they are run."""


def check_traffic(
    commands: Sequence[CommandRecord],
    *,
    cluster: bool = False,
    switched_off: Mapping[str, str] | None = None,
    scripts: ScriptSet = PINNED_SCRIPTS,
) -> list[Finding]:
    """Run all checks without those that are switched off (names and reasons).

    `scripts`: how the scripts of the oracle's version are called.

    Findings that differ only in the numbers of commands are one, which counts them.

    Raises UsageProblem for an unknown name or an empty reason.
    """
    traffic = Traffic(commands, cluster=cluster, scripts=scripts)
    checks = without_switched_off(ALL_CHECKS, switched_off)
    return _once_each(finding for check in checks for finding in check.run(traffic))


def _once_each(findings: Iterable[Finding]) -> list[Finding]:
    """Fold findings that differ only in the numbers of commands: a client repeats its mistake in every call."""
    kinds: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        kind = (finding.kind, finding.where, _NUMBER_OF_COMMAND.sub("#", finding.message))
        first = kinds.get(kind)
        kinds[kind] = msgspec.structs.replace(first, times=first.times + 1) if first else finding
    return list(kinds.values())


__all__ = ["ALL_CHECKS", "Traffic", "check_traffic"]
