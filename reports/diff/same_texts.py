"""Texts that are spelled differently and mean the same, as the gate's own rules say. No Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.canonical import canonicalise
from conformance.observe.tables import Job, Snapshot
from reports.diff.columns import Flags, flags
from reports.diff.settings import Settings
from reports.snapshot.rows import as_text

TEXT_RULES = {"opts": "opts-parsed-json", "parent": "opts-parsed-json", "stacktrace": "stack-trace-text"}
"""Fields whose canonical form depends on nothing but their own text, with the rule that makes it."""


def same_by_rule(field: str, left: pa.Array, right: pa.Array, settings: Settings) -> Flags:
    """Whether the rule of the field makes the same text of both. Each different text is looked at once."""
    rules = [rule for rule in settings.rules() if rule.name == TEXT_RULES[field]]
    both_there = flags(pc.and_(pc.is_valid(left), pc.is_valid(right)))
    if not rules or not both_there.any():
        return np.zeros(len(left), np.bool_)
    coded = pa.chunked_array([left, right]).combine_chunks().dictionary_encode()
    forms = _canonical(field, [as_text(text) for text in coded.dictionary.to_pylist()], settings)
    known = {form: number for number, form in enumerate(dict.fromkeys(forms))}
    number_of = np.array([known[form] for form in forms], np.int64)
    codes = np.asarray(pc.fill_null(coded.indices, 0)).astype(np.int64)
    numbers = number_of[codes]
    same: Flags = both_there & (numbers[: len(left)] == numbers[len(left) :])
    return same


def _canonical(field: str, texts: Sequence[str], settings: Settings) -> list[str]:
    jobs = tuple(Job(queue="", id="", fields={field: text}) for text in texts)
    rules = [rule for rule in settings.rules() if rule.name == TEXT_RULES[field]]
    found = canonicalise(Snapshot(prefix="", taken_ms=0, jobs=jobs), rules, settings.context)
    return [job.fields[field] for job in found.jobs]
