"""Digests without the compiled library, for machines that have no `cargo`: slower, and of a kind of their own.

Here the canonical rules and the checks themselves say what is equal and what is good. The Rust sources next to this
module say it again, for speed; a test compares the two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.checkers.base import SnapshotView
from conformance.checkers.snapshot_checks import checks_of
from conformance.observe.canonical import canonicalise
from conformance.observe.canonical_rules import OPTS_PARSED_JSON, STACK_TRACE_TEXT
from conformance.observe.tables import Job, Snapshot
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
from reports.snapshot.rows import as_text

KIND = "plain-3"
"""Which digests these are; a change of their meaning is another number."""

_RULES = (OPTS_PARSED_JSON, STACK_TRACE_TEXT)
"""The rules that need no more than one field of a hash."""

_FIELD_CHECKS = ("required-fields", "numbers", "times", "times-in-order", "attempts", "json-texts")
FIELD_CHECKS = [check for check in checks_of("job") if check.name in _FIELD_CHECKS]
"""The checks of the fields of a hash."""

_FLOW_OR_ITERATION = frozenset({b"parent", b"parentKey", b"rjk"})
_TIMES = {b"timestamp": ("timestamp", 0), b"processedOn": ("processed", HAS_PROCESSED)}
_TIMES |= {b"finishedOn": ("finished", HAS_FINISHED)}
_ENDS = {b"returnvalue": HAS_RESULT, b"failedReason": HAS_REASON}
_STREAM_ID = re.compile(rb"([0-9]{1,18})-[0-9]{1,18}")
_WRAP = (1 << 64) - 1


def keys_of_columns(queues: pa.Array, ids: pa.Array) -> Keys:
    """As `reports.snapshot.digests.library.keys_of_columns`."""
    return np.array([_key(*names) for names in zip(_plain(queues), _plain(ids), strict=True)], np.uint64)


def job_records(queues: pa.Array, ids: pa.Array, fields: pa.MapArray, prefix: bytes) -> Any:
    """As `reports.snapshot.digests.library.job_records`."""
    found = np.zeros(len(ids), JOB_RECORD)
    rows = list(zip(_plain(queues), _plain(ids), _pairs(fields), strict=True))
    jobs = tuple(
        Job(queue=as_text(queue), id=as_text(job), fields={as_text(name): as_text(value) for name, value in pairs})
        for queue, job, pairs in rows
    )
    view = SnapshotView(Snapshot(prefix="", taken_ms=0, jobs=jobs))
    broken = {detail.key for check in FIELD_CHECKS for detail in check.predicate(view)}
    canonical = canonicalise(view.snapshot, _RULES).jobs
    for place, ((queue, job, pairs), form) in enumerate(zip(rows, canonical, strict=True)):
        record = _job_record(queue, job, pairs, prefix + b":")
        record["texts"] = _hash(*(part for name in sorted(form.fields) for part in _form(name, form.fields[name])))
        record["flags"] |= 0 if f"{form.queue}:{form.id}" in broken else GOOD
        for name, value in record.items():
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
    flags = sum(flag for name, (_, flag) in _TIMES.items() if name in fields)
    flags |= sum(flag for name, flag in _ENDS.items() if name in fields)
    found["flags"] = flags | (USUAL if is_usual else 0)
    return found


def _form(name: str, value: str) -> tuple[bytes, bytes]:
    """A field as far as the rules do not make it equal to another one; a time that is one has its own column."""
    # A rule may have read half of a surrogate pair from an escape.
    field, text = (part.encode("utf-8", "surrogatepass") for part in (name, value))
    return field, b"" if field in _TIMES and _number(text, 13, 13) >= 0 else text


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
