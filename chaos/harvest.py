"""Brings the calls of scripts from the taps into the history: at the end, or meanwhile, so that taps keep little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from chaos.background import Background
from chaos.members import Member
from chaos.recorder import Recorder
from chaos.wire import script_lines

PERIOD_S = 1.0
ON_THE_WAY = frozenset({"waiting", "sent"})


class Harvest(Background):
    """Use it with `with` to collect once a second; `collect` takes what is left at the end."""

    def __init__(self, members: Sequence[Member], recorder: Recorder) -> None:
        super().__init__()
        self._members = members
        self._recorder = recorder
        self._after = {member.name: 0 for member in members}

    def collect(self, *, everything: bool) -> None:
        """Record the calls that have come to their end, up to the first that has not; `everything`: those too."""
        for member in self._members:
            records = member.tap.recording.commands(after=self._after[member.name])
            if not everything:
                records = tuple(takewhile(lambda record: record.fate not in ON_THE_WAY, records))
            for line in script_lines(member, records, self._members, self._recorder):
                self._recorder.put(line)
            if records:
                self._after[member.name] = records[-1].sequence
                member.tap.forget(upto=records[-1].sequence)

    def go_on(self) -> None:
        """Work until the end."""
        while not self.ended.wait(PERIOD_S):
            self.collect(everything=False)
