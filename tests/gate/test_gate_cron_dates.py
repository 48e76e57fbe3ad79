"""Scenarios about cron patterns are about patterns: their dates are numbers, which any client can be given."""

from __future__ import annotations

from typing import Any

from conformance.scenarios import test_cron_patterns as cron_patterns


class ScheduleRecorder:
    """A client, its only queue and its state in Redis in one object; records the requested schedules."""

    def __init__(self) -> None:
        self.repeats: list[dict[str, Any]] = []
        self.redis = self

    def queue(self) -> ScheduleRecorder:
        return self

    def schedule(self, _name: str, repeat: dict[str, Any], **_more: Any) -> None:
        self.repeats.append(repeat)

    def members(self, _key: str) -> list[str]:
        return ["s0"]


def test_dates_are_numbers() -> None:
    client = ScheduleRecorder()
    cron_patterns.test_every_month_has_its_days.scenario.function(client, "months-1-to-3")
    cron_patterns.test_clocks_are_changed.scenario.function(client, "Europe/Berlin")
    cron_patterns.test_zones_have_many_names.scenario.function(client)
    assert {type(repeat["startDate"]) for repeat in client.repeats} == {int}
    assert {repeat["startDate"] for repeat in client.repeats if repeat["tz"] == "UTC"} == {2_000_000_031_457}
