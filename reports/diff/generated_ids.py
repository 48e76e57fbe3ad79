"""Jobs with generated ids in queues that are too large to be compared as a whole.

Generated ids (uuids, iterations of schedulers) differ between two equal stores, so these jobs are compared in one
piece, where `reports.diff.pairing` matches them by content. Rows that name them (parents, locks, deduplication keys)
are in the same piece. Jobs with uuids that no other row names, and of which both sides have equally many with the same
content, are compared in shares. Every other job of such a queue is compared by its id.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.canonical import canonicalise
from conformance.observe.canonical_rules import GENERATED_UUIDS, UUID
from reports.diff.pairing import JobContents
from reports.diff.values import DiffSettings, DiffSide
from reports.snapshot.digests.library import keys_of_columns
from reports.snapshot.digests.records import Keys, keys_of
from reports.snapshot.digests.rows import JOB_TABLES, DigestedFolder, is_of
from reports.snapshot.format import GENERATED_CHILD, GENERATED_ID
from reports.snapshot.rows import Tables, as_bytes, rows_by_table, snapshot_of
from reports.snapshot.rows import texts as arrow_texts

_GENERATED = re.compile(GENERATED_ID, re.DOTALL)


def is_generated(job: str) -> bool:
    """Whether an id is one."""
    return _GENERATED.match(job) is not None


@dataclass(frozen=True, kw_only=True)
class GeneratedJobs:
    """The separated jobs of one bucket. `keys`: their numbers on both sides.

    `content`, `first_ms`, `queue`, `key`: of those of each side that no other row of a job names, what they are (a
    checksum), when they were added, the place of their queue among those that are large, and their numbers.
    """

    keys: Keys
    alone: tuple[pa.Table, pa.Table]


def generated_jobs(
    sides: Sequence[DigestedFolder], bucket: int, queues: Sequence[str], settings: DiffSettings
) -> GeneratedJobs:
    """Find the jobs of these queues that are compared separately. Raises OSError.

    A parent is separated on both sides if it has a child with a generated id on one of them.
    """

    def is_here(digests: pa.Table) -> Any:
        return is_of(digests, queues)

    rows = [{table: side.rows_where(table, bucket, is_here) for table in JOB_TABLES} for side in sides]
    parents = pa.concat_arrays([_parents_in(side["dependencies"]) for side in rows])
    apart = [{table: listed.filter(_is_apart(listed, parents)) for table, listed in side.items()} for side in rows]
    keys = [numbers_in(listed) for side in apart for listed in side.values()]
    left, right = (
        _content_of_jobs(listed, queues, facts, settings) for listed, facts in zip(apart, settings.sides, strict=True)
    )
    return GeneratedJobs(keys=np.unique(np.concatenate(keys)), alone=(left, right))


def numbers_in(rows: pa.Table) -> Keys:
    """The number of the job of each row."""
    return keys_of_columns(*(rows.column(name).combine_chunks() for name in ("queue", "id")))


def _parents_in(dependencies: pa.Table) -> pa.Array:
    """Keys of the jobs that have children with generated ids."""
    children = dependencies.column("key").combine_chunks().view(pa.binary())
    return keys_of(
        dependencies.filter(pc.fill_null(pc.match_substring_regex(children, GENERATED_CHILD), fill_value=False))
    )


def _is_apart(rows: pa.Table, parents: pa.Array) -> pa.Array:
    job = rows.column("id").combine_chunks().view(pa.binary())
    generated = pc.or_(pc.match_substring_regex(job, GENERATED_ID), pc.is_in(keys_of(rows), value_set=parents))
    return pc.fill_null(generated, fill_value=False)


JOBS_TOGETHER = 500
"""Jobs of the same content of one side that come into one share."""

ROWS_PER_SHARE = 50_000


def _content_of_jobs(tables: Tables, queues: Sequence[str], facts: DiffSide, settings: DiffSettings) -> pa.Table:
    """A checksum of each job that no other row names: what `reports.diff.pairing` compares of it."""
    # With every rule, because jobs that differ only where a rule is switched off still have to meet.
    rules = replace(settings, switched_off=()).rules(GENERATED_UUIDS.name)
    rows = [(table, row) for table, listed in rows_by_table(tables).items() for row in listed]
    found: list[tuple[int, str, int, int]] = []
    for place, queue in enumerate(queues):
        side = snapshot_of(facts.prefix, facts.taken_ms, (pair for pair in rows if pair[1].queue == queue))
        contents = JobContents(canonicalise(side, rules, settings.context))
        parents = {row.parent for row in side.dependencies}
        for row in side.jobs:
            if UUID.fullmatch(row.id) and row.id not in parents and "parentKey" not in row.fields:
                text = repr(contents.alone(row.id)).encode("utf-8", "surrogateescape")
                content = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
                found.append((place, row.id, content, int(row.number("timestamp") or 0)))
    places, ids, sums, added = zip(*found, strict=True) if found else ((), (), (), ())
    names = ([as_bytes(queues[place]) for place in places], [as_bytes(job) for job in ids])
    return pa.table({
        "queue": pa.array(places, pa.int64()),
        "key": pa.array(keys_of_columns(*map(arrow_texts, names)), pa.uint64()),
        "content": pa.array(sums, pa.uint64()),
        "first_ms": pa.array(added, pa.int64()),
    })  # fmt: skip


Shares: TypeAlias = "tuple[dict[int, int], dict[int, int]]"
"""For each side the share of each job, by its number. A job that is in none is compared with all others of its kind."""


def shares_of(found: Sequence[GeneratedJobs], rows: int) -> Shares:
    """Which of the separated jobs are compared together.

    Of jobs with the same content both sides have as many in the same share, so that each meets its partner there.
    `rows`: how many rows there may be.
    """
    sides = [pa.concat_tables([jobs.alone[side] for jobs in found]) for side in (0, 1)]
    numbered = [_numbered(side) for side in sides]
    shares: Shares = ({}, {})
    for what in numbered[0].keys() & numbered[1].keys():
        pair = [side[what] for side in numbered]
        for number in range(min(map(len, pair))):
            share = hash((what, number // JOBS_TOGETHER)) % (rows // ROWS_PER_SHARE + 1)
            for side in (0, 1):
                shares[side][pair[side][number]] = share
    return shares


def _numbered(jobs: pa.Table) -> dict[tuple[int, int], list[int]]:
    """The numbers of the jobs with the same queue and content, in the order in which they were added."""
    ordered = jobs.sort_by([("first_ms", "ascending"), ("key", "ascending")])
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    columns = [ordered.column(name).to_pylist() for name in ("queue", "content", "key")]
    for queue, content, key in zip(*columns, strict=True):
        found[queue, content].append(key)
    return found
