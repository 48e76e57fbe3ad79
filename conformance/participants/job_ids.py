"""The ids of one queue's jobs: as a scenario writes them, and as the client gave them.

Scenarios are written as for Node, where the n-th job that is added has the id n unless the user named one. A client may
give ids of another kind; then the n-th that it gave stands for n, and both sides go on with the ids that they know.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

NOT_GENERATED = None
"""Stands for a job whose id the user named, or that is no new one: it counts, and has no other name."""

_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


class JobIds:
    """Which id of the client stands for which id of the scenario. As long as the client counts like Node: the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_client: dict[str, str] = {}
        self._of_scenario: dict[str, str] = {}
        self._in_flight = 0
        self._added_before = 0
        self._obliterations = 0
        self._anew = False
        self._untold: deque[str] = deque()
        self._user_named: set[str] = set()
        self._made_up: set[str] = set()
        self.added = 0
        """What Node's counter would show."""
        self.differ = False
        """Whether some id is another one for the client than for the scenario."""
        self.decide_order = False
        """Whether jobs came in an order that their ids alone decide, so that another scheme gives another one."""

    def to_client(self, job: str) -> str:
        """The id that the client gave to the job which the scenario means."""
        return self._of_client.get(job, job)

    def to_scenario(self, job: str) -> str:
        """The id by which the scenario means the client's job."""
        return self._of_scenario.get(job, job)

    def knows(self, job: str) -> bool:
        """Whether this id of the client's was seen in an answer, or is one that the user gave."""
        return job in self._of_scenario or job in self._user_named

    def is_made_up(self, job: str) -> bool:
        """Whether the client made up this id of its own, where Node would have counted or drawn a UUID."""
        return job in self._made_up

    @property
    def same(self) -> bool:
        """Whether there is nothing to rename, as far as the client has shown; an id that it has not told may be."""
        return not (self.differ or self._untold)

    @contextmanager
    def adding(self, jobs: int) -> Iterator[None]:
        """While so many jobs are being added: others that are added meanwhile may be counted already."""
        with self._lock:
            self._in_flight += jobs
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= jobs

    def name(self, job: str) -> None:
        """The user has named a job."""
        self._user_named.add(job)

    def learn(self, answers: Sequence[str | None], counter: Callable[[], int]) -> str:
        """Take the ids that one call's answer gave, in order. Called inside of `adding`.

        `counter` asks Redis for the queue's counter. Returns what is other than with Node, empty if nothing is.
        """
        with self._lock:
            if self._as_counted(answers):
                return ""
            shown = counter()
            adding = self._in_flight
            if self._obliterations and not self._anew and 0 < shown <= adding:
                self._begin_anew()
            gone = shown == 0 and self._added_before > 0
            # What an obliteration has taken was added before it, although its answer comes only now.
            before = self._added_before if gone else max(self.added, shown - adding)
            found = [self._learn(answer, before + place, shown) for place, answer in enumerate(answers, start=1)]
            if not gone:
                self.added, self._added_before = max(self.added, before + len(answers)), 0
            return next(filter(None, found), "")

    def learn_of_flow(self, answer: str | None) -> str:
        """Take the id of a node of a flow, for which Node draws a UUID. Returns what it is instead, if it is none."""
        with self._lock:
            self.added += 1
            if answer is NOT_GENERATED or answer in self._of_scenario:
                return ""
            drawn = _UUID4.fullmatch(answer) is not None
            if not drawn:
                self._made_up.add(answer)
            self._put(answer if drawn else str(uuid.uuid4()), answer)
            return "" if drawn else f"{answer!r} for a job of a flow"

    def duplicate_to_scenario(self, job: str) -> str:
        """The id that a job would have got which was not added: only events tell it.

        Those that a client of other ids made up come in the order in which they were taken.
        """
        with self._lock:
            if not self.knows(job) and self._untold and (self.differ or not job.isdecimal()):
                self._made_up.add(job)
                self._put(self._untold.popleft(), job)
            return self.to_scenario(job)

    @contextmanager
    def obliterating(self, is_gone: Callable[[], bool]) -> Iterator[None]:
        """While the queue is being obliterated: then the counter begins again, and jobs get ids that others had.

        `is_gone` asks Redis whether it has happened, whatever the client has heard of it.
        """
        with self._lock:
            self._obliterations += 1
        try:
            yield
        finally:
            gone = is_gone()
            with self._lock:
                self._obliterations -= 1
                if gone and not self._anew:
                    self._begin_anew()
                self._anew = False

    def _begin_anew(self) -> None:
        self._added_before, self.added, self._anew = self.added, 0, True
        for known in (self._of_client, self._of_scenario, self._user_named):
            known.clear()

    def _as_counted(self, answers: Sequence[str | None]) -> bool:
        """Take them at once if they are just what the count so far makes one expect."""
        expected = [str(self.added + place) for place in range(1, len(answers) + 1)]
        if any(
            answer is not NOT_GENERATED and not self.knows(answer) and (answer != number or number in self._of_client)
            for answer, number in zip(answers, expected, strict=True)
        ):
            return False
        for answer in answers:
            self.added += 1
            if answer is NOT_GENERATED:
                continue
            if self.knows(answer):
                self._untold.append(str(self.added))
            else:
                self._put(answer, answer)
        return True

    def _learn(self, answer: str | None, number: int, shown: int) -> str:
        if answer is NOT_GENERATED:
            return ""
        if self.knows(answer):
            self._untold.append(str(number))
            return ""
        if answer == str(number) or self._is_counted_by_redis(answer, shown):
            self._put(answer, answer)
            return ""
        free = range(number, number + len(self._of_client) + 1)
        number = next(candidate for candidate in free if str(candidate) not in self._of_client)
        self._made_up.add(answer)
        self._put(str(number), answer)
        return f"{answer!r} for job {number}"

    def _is_counted_by_redis(self, answer: str, shown: int) -> bool:
        """Whether the id is a number that the counter in Redis has given; stricter where others were seen."""
        if not (answer.isascii() and answer.isdecimal()) or answer in self._of_client:
            return False
        return (self.added if self.differ else 0) < int(answer) <= shown

    def _put(self, of_scenario: str, of_client: str) -> None:
        self._of_client[of_scenario] = of_client
        self._of_scenario[of_client] = of_scenario
        self.differ = self.differ or of_scenario != of_client
