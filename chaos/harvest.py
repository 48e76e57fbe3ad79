"""Brings the calls of scripts from the taps into the history: at the end, or meanwhile, so that taps keep little."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import takewhile
from typing import Self

from chaos.members import Member
from chaos.recorder import Recorder
from chaos.wire import script_lines

PERIOD_S = 1.0
ON_THE_WAY = frozenset({"waiting", "sent"})


class Harvest:
    """Use it with `with` to collect once a second; `collect` takes what is left at the end."""

    def __init__(self, members: Sequence[Member], recorder: Recorder) -> None:
        self._members = members
        self._recorder = recorder
        self._after = {member.name: 0 for member in members}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="harvest")

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Collect no more by itself. May be called again."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

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

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self.collect(everything=False)
