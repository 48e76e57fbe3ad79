"""Cutting many replies at once gives what hiredis reads, whatever is in them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reports.snapshot import hashes
from reports.snapshot.files import bucket_of, buckets_of
from reports.snapshot.hashes import hashes_of
from reports.snapshot.wire import packed

TRICKY = [
    b"",
    b"\r\n",
    b"\r",
    b"\n",
    b"a\r",
    b"\nb",
    b"*2",
    b"$3",
    b"*2\r\n$1\r\na\r\n$1\r\nb",
    b"$99999999999999",
    b"*" * 50,
]
VALUES = st.sampled_from(TRICKY) | st.binary(max_size=20)
REPLIES = st.lists(st.none() | st.lists(st.tuples(VALUES, VALUES), max_size=4), max_size=6)
Reply = list[tuple[bytes, bytes]] | None


def written(replies: list[Reply]) -> memoryview:
    """As Redis writes them; None stands for a key of another type."""
    return memoryview(
        b"".join(packed([word for pair in reply for word in pair]) if reply is not None else WRONG for reply in replies)
    )


WRONG = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


def read(replies: list[Reply]) -> tuple[list[int], list[bytes], list[bytes]]:
    sizes, names, values = hashes_of(written(replies), len(replies))
    return sizes.tolist(), *(column.view(pa.binary()).to_pylist() for column in (names, values))


@given(REPLIES)
@example([[(b"name", b"x"), (b"data", b"{}")], [], [(b"name", b"")]])
@example([[(b"a\r\nb", b"\r\n$1\r\nc")], None, [(b"n", b"*2")]])
def test_what_was_written_is_read(replies: list[Reply]) -> None:
    pairs = [pair for reply in replies for pair in reply or ()]
    sizes = [-1 if reply is None else len(reply) for reply in replies]
    assert read(replies) == (sizes, [name for name, _ in pairs], [value for _, value in pairs])


def test_only_what_cannot_be_cut_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("read slowly")

    monkeypatch.setattr(hashes, "_read_slowly", refuse)
    assert read([[(b"name", b"*2"), (b"", b"a\r"), (b"\nb", b"$3")], []])[0] == [3, 0]
    slow: list[list[Reply]] = [[[(b"name", b"a\r\nb")]], [[(b"name", b"a")], None]]
    for replies in slow:
        with pytest.raises(AssertionError, match="read slowly"):
            read(replies)


@given(st.lists(st.none() | st.binary(max_size=80)), st.integers(0, 3), st.sampled_from([2, 16, 64]))
def test_the_bucket_of_an_id_is_the_same_one_by_one_and_at_once(
    ids: list[bytes | None], cut: int, buckets: int
) -> None:
    column = pa.array(ids, pa.binary())[cut:]
    assert buckets_of(column, buckets).tolist() == [bucket_of(job or b"", buckets) for job in ids[cut:]]
