"""Texts made safe, short and comparable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.report.text import Parted, clip, clip_parted, count, duration, moment, part, shape, visible


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("a\x1b[31m\u202eb\ud800\ufffe\t\r\n") == "a\\x1b[31m\\u202eb\\ud800\\ufffe\\t\\r\n"
    assert visible("a\nb", keep_newlines=False) == "a\\nb"
    assert visible("grün 日本 ✓") == "grün 日本 ✓"


@given(st.text(), st.text())
def test_parts_put_together_are_the_texts(expected: str, actual: str) -> None:
    left, right = part(expected, actual)
    assert ("".join(left), "".join(right)) == (expected, actual)
    assert (left.before, left.after) == (right.before, right.after)
    assert (left.different == right.different) == (expected == actual)


def test_a_difference_is_located() -> None:
    assert part("delay: 1000 ms", "delay: 15 ms") == (
        Parted("delay: 1", "000", " ms"),
        Parted("delay: 1", "5", " ms"),
    )


def test_long_texts_are_shortened_around_the_difference() -> None:
    left, _ = part("a" * 100 + "X" + "b" * 100, "a" * 100 + "Y" + "b" * 100)
    assert "".join(clip_parted(left, 5)) == "…aaaaaXbbbbb…"
    assert clip("abcdef", 3) == "abc… (6 characters)"
    assert clip("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1700000000000", "1700000009999", True),
        ("id 0b3c7c5e-7a52-4f0a-9c5d-0123456789ab", "id 11111111-2222-4333-8444-555555555555", True),
        ("sha a1b2c3d4e5", "sha ffffffff00", True),
        ("-1", "-2", False),
        ("deadbeefs", "faceless", False),
        ("attempts 3", "attempts 4", False),
    ],
)
def test_shape_takes_out_what_is_volatile(one: str, other: str, same: bool) -> None:
    assert (shape(one) == shape(other)) == same


def test_words_for_people() -> None:
    assert [duration(ms) for ms in (0, 999, 1000, 59_949, 125_400)] == [
        "0 ms",
        "999 ms",
        "1.0 s",
        "59.9 s",
        "2 min 05 s",
    ]
    assert moment(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert (count(1, "entry", "entries"), count(2, "entry", "entries"), count(0, "job")) == (
        "1 entry",
        "2 entries",
        "0 jobs",
    )
