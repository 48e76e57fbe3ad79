"""Digests without the compiled library, for machines that have no `cargo`: slower, and of a kind of their own.

The numbers mean the same as those of the Rust sources next to this module, and a test compares their flags and times.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from reports.snapshot.digests.records import (
    EVENT_RECORD,
    GOOD,
    HAS_FINISHED,
    HAS_PROCESSED,
    HAS_REASON,
    HAS_RESULT,
    HISTORY_RECORD,
    IS_ADDED,
    IS_ODD,
    JOB_RECORD,
    USUAL,
    Keys,
)

KIND = "plain-2"
"""Which digests these are; a change of their meaning is another number."""

_REQUIRED = frozenset({b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"})
_FLOW_OR_ITERATION = frozenset({b"parent", b"parentKey", b"rjk"})
_TIMES = {b"timestamp": ("timestamp", 0), b"processedOn": ("processed", HAS_PROCESSED)}
_TIMES |= {b"finishedOn": ("finished", HAS_FINISHED)}
_ENDS = {b"returnvalue": HAS_RESULT, b"failedReason": HAS_REASON}
_JSON = frozenset({b"data", b"returnvalue", b"progress"})
_COUNTS = (b"ats", b"atm", b"stc")
_STREAM_ID = re.compile(rb"([0-9]{1,18})-[0-9]{1,18}")
_WRAP = (1 << 64) - 1


def keys_of_columns(queues: pa.Array, ids: pa.Array) -> Keys:
    """As `reports.snapshot.digests.library.keys_of_columns`."""
    return np.array([_key(*names) for names in zip(_plain(queues), _plain(ids), strict=True)], np.uint64)


def job_records(queues: pa.Array, ids: pa.Array, fields: pa.MapArray, prefix: bytes) -> Any:
    """As `reports.snapshot.digests.library.job_records`."""
    found = np.zeros(len(ids), JOB_RECORD)
    rows = zip(_plain(queues), _plain(ids), _pairs(fields), strict=True)
    for place, (queue, job, pairs) in enumerate(rows):
        for name, value in _job_record(queue, job, pairs, prefix + b":").items():
            found[name][place] = value
    return found


def event_records(texts: Sequence[pa.Array], fields: pa.MapArray, prefix: bytes) -> Any:
    """As `reports.snapshot.digests.library.event_records`."""
    found = np.zeros(len(fields), EVENT_RECORD)
    mark = prefix + b":"
    for place, (queue, job, name, entry, pairs) in enumerate(zip(*map(_plain, texts), _pairs(fields), strict=True)):
        match = _STREAM_ID.fullmatch(entry)
        is_odd = name == b"delayed" or match is None or any(mark in text for pair in pairs for text in pair)
        own = [(field, b"" if field == b"jobId" else value) for field, value in pairs]
        own += [(b"", entry)] if is_odd else []
        is_added = name == b"added"
        added_ms = int(match[1]) if is_added and match else -1
        flags = (IS_ODD if is_odd else 0) | (IS_ADDED if is_added else 0)
        found[place] = (_key(queue, job), _hash(name, *(text for pair in own for text in pair)), added_ms, flags, 0)
    return found


def histories(keys: Keys, contents: Keys, added_ms: Any, flags: Any) -> Any:
    """As `reports.snapshot.digests.library.histories`."""
    found: dict[int, list[int]] = {}
    rows = zip(keys.tolist(), contents.tolist(), added_ms.tolist(), flags.tolist(), strict=True)
    for key, content, added, flag in rows:
        history = found.setdefault(key, [0, -1, 0, 0])
        if flag & IS_ADDED and not history[2] & IS_ADDED:
            history[1] = added
        history[0] = (history[0] * 0x9E3779B97F4A7C15 + content + 1) & _WRAP
        history[2] |= flag
        history[3] += 1
    return np.array([(key, *history) for key, history in found.items()], HISTORY_RECORD)


def _job_record(queue: bytes, job: bytes, pairs: Sequence[tuple[bytes, bytes]], mark: bytes) -> dict[str, int]:
    fields = dict(pairs)
    key = queue + b":" + job
    is_usual = mark not in key and b":repeat:" not in key and not fields.keys() & _FLOW_OR_ITERATION
    is_usual = is_usual and not any(mark in text for pair in pairs for text in pair)
    opts = fields.get(b"opts", b"")
    is_usual = is_usual and b'"timestamp"' not in opts and b"\\u" not in opts
    number = -1 if job.startswith(b"0") else _number(job, 1, 18)
    found = {"key": _key(queue, job), "number": number}
    found |= {name: _number(fields.get(field, b""), 13, 13) for field, (name, _) in _TIMES.items()}
    found |= {name: _number(fields.get(name.encode(), b""), 1, 9) for name in ("delay", "priority")}
    found |= {name: _hash(fields[name.encode()]) for name in ("opts", "stacktrace") if name.encode() in fields}
    found["texts"] = _hash(*(part for name in sorted(fields) for part in (name, _form(name, fields[name]))))
    flags = sum(flag for name, (_, flag) in _TIMES.items() if name in fields)
    flags |= sum(flag for name, flag in _ENDS.items() if name in fields)
    found["flags"] = flags | (USUAL if is_usual else 0) | (GOOD if _is_good(fields, found) else 0)
    return found


def _is_good(fields: Mapping[bytes, bytes], found: Mapping[str, int]) -> bool:
    """Whether all fields are there, numbers are numbers, and JSON is JSON."""
    ats, atm, stc = (_number(fields[name], 1, 9) if name in fields else 0 for name in _COUNTS)
    is_good = fields.keys() >= _REQUIRED and found["delay"] >= 0 and found["priority"] >= 0
    is_good = is_good and min(ats, atm, stc) >= 0 and atm <= ats
    is_good = is_good and all(_parsed(fields[name]) is not None for name in _JSON & fields.keys())
    is_good = is_good and fields[b"opts"].startswith(b"{") and _parsed(fields[b"opts"]) is not None
    trace = fields.get(b"stacktrace")
    return is_good and (trace is None or (trace.startswith(b"[") and _count_of_texts(trace) is not None))


def _form(name: bytes, value: bytes) -> bytes:
    """The value of a field, as far as the rules do not make it equal to another one."""
    if name in _TIMES:
        return b"" if _number(value, 13, 13) >= 0 else b"no time " + value
    if name == b"stacktrace" and (count := _count_of_texts(value)) is not None:
        return b"%d texts" % count
    if name == b"opts" and value.startswith(b"{") and (parsed := _parsed(value)) is not None:
        return b"json " + parsed
    return b"text " + value


def _count_of_texts(value: bytes) -> int | None:
    """How many texts an array holds; None if it is not an array of texts alone."""
    parsed = _parsed(value)
    listed = None if parsed is None else json.loads(parsed)
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        return None
    return len(listed)


def _parsed(value: bytes) -> bytes | None:
    """JSON in a form that does not depend on the order of names. None if it is not JSON, or odd."""
    try:
        # Numbers stay as they are written: a float must not equal a number that is only near.
        parsed = json.loads(
            value.decode(), object_pairs_hook=_once, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
        )
        return json.dumps(parsed, sort_keys=True, default=repr).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


class _Number:
    """A number as it is written; JSON has no type that equals it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"\x00{self.text}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _number(text: bytes, least: int, most: int) -> int:
    """A whole number of this many digits; -1 for every other text."""
    is_number = least <= len(text) <= most and text.isdigit()
    return int(text) if is_number else -1


def _key(queue: bytes, job: bytes) -> int:
    return _hash(queue, job)


def _hash(*texts: bytes) -> int:
    whole = b"".join(b"%d:%s" % (len(text), text) for text in texts)
    return int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "little")


def _plain(column: pa.Array) -> list[bytes]:
    return [value or b"" for value in column.view(pa.binary()).to_pylist()]


def _pairs(fields: pa.MapArray) -> Iterator[list[tuple[bytes, bytes]]]:
    offsets = fields.offsets.to_pylist()
    names, values = (column.view(pa.binary()) for column in (fields.keys, fields.items))
    for start, end in pairwise(offsets):
        yield list(zip(names[start:end].to_pylist(), values[start:end].to_pylist(), strict=True))
