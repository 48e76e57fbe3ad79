"""Dates as options may give them, and the limits that they set."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from conformance.reference_impl.encoding.js_date import iso_text, milliseconds
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.schedules.repeat_strategy import is_over, next_count, refuse_past_end

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    "given",
    [
        *(NOW, float(NOW), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "2023-11-14T22:13:20.000Z"),
        *("2023-11-14T23:13:20+01:00", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ],
    ids=str,
)
def test_one_instant_in_many_forms(given: Any) -> None:
    assert milliseconds(given) == NOW


def test_a_date_alone_is_utc() -> None:
    assert milliseconds("2023-11-14") == NOW - NOW % 86_400_000
    assert milliseconds("2023") == 1_672_531_200_000
    assert milliseconds("2023-02") == 1_675_209_600_000


@pytest.mark.parametrize("given", ["soon", "", None, [], "2023-13-01"], ids=repr)
def test_what_is_no_date_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="Invalid date"):
        milliseconds(given)


def test_iso_text_is_that_of_javascript() -> None:
    assert iso_text(NOW + 7) == "2023-11-14T22:13:20.007Z"
    assert iso_text(-1) == "1969-12-31T23:59:59.999Z"


def test_iterations_are_counted_up_to_the_limit() -> None:
    assert next_count({}) == 1
    assert next_count({"count": 2, "limit": 3}) == 3
    assert next_count({"count": 3, "limit": 3}) is None
    assert next_count({"limit": 0}) is None


def test_an_end_date_ends_after_its_instant() -> None:
    assert not is_over({"endDate": NOW}, NOW)
    assert is_over({"endDate": NOW}, NOW + 1)
    with pytest.raises(InvalidArgument, match="End date must be greater than current timestamp"):
        refuse_past_end({"endDate": NOW}, NOW + 1)
