"""The ids of one queue's jobs: those of the scenario, and those of the client.

Scenarios are written for Node, where the n-th added job has the id n unless the user chose one. A client may generate
other ids: then the n-th id that it generated corresponds to n, and each side keeps using its own ids.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from conformance.driver.errors import OperationFailed, OperationUnsupported

NOT_GENERATED = None
"""In place of an id: the user chose it, or the job is not new. The job counts, and its id needs no translation."""

PLAIN_ID = r"[^\s:\"'\\,}\])]+"
"""Regular expression of an id in a text, without the characters that usually follow one."""
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


class JobIds:
    """Translates ids between client and scenario. While the client counts like Node, they are equal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_client: dict[str, str] = {}
        self._of_scenario: dict[str, str] = {}
        self._in_flight = 0
        self._added_before = 0
        self._obliterations = 0
        self._restarted = False
        self._unreported: deque[str] = deque()
        self._user_named: set[str] = set()
        self._made_up: set[str] = set()
        self.unusual: tuple[str, ...] = ()
        """Ids of the client that are not plain (`PLAIN_ID`)."""
        self.added = 0
        """The value that Node's counter would have."""
        self.differ = False
        """Whether some id of the client differs from the scenario's."""
        self.decide_order = False
        """Whether only the ids decided the order of some jobs: other ids then give another order."""

    def to_client(self, job: str) -> str:
        """The client's id of a job, from the scenario's id."""
        return self._of_client.get(job, job)

    def to_scenario(self, job: str) -> str:
        """The scenario's id of a job, from the client's id."""
        return self._of_scenario.get(job, job)

    def knows(self, job: str) -> bool:
        """Whether this id of the client appeared in an answer, or was chosen by the user."""
        return job in self._of_scenario or job in self._user_named

    def is_made_up(self, job: str) -> bool:
        """Whether the client generated this id, for a job to which Node would have given a number or a UUID."""
        return job in self._made_up

    @property
    def same(self) -> bool:
        """Whether nothing needs translation, as far as seen. An id that no answer has reported yet might need it."""
        return not (self.differ or self._unreported)

    @contextmanager
    def adding(self, jobs: int) -> Iterator[None]:
        """The block in which this number of jobs is added: Redis may have counted them before the answer comes."""
        with self._lock:
            # Before the call is sent: Redis may count its jobs before the answer arrives.
            self._in_flight += jobs
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= jobs

    def name(self, job: str) -> None:
        """Record that the user chose this id."""
        self._user_named.add(job)

    def learn(self, answers: Sequence[str | None], counter: Callable[[], int]) -> str:
        """Learn the ids in one call's answer, in order. Call it inside `adding`.

        `counter` reads the queue's counter from Redis. Returns the deviation from Node, or an empty text.
        """
        with self._lock:
            # The usual case first: it needs no read of the counter, which would cost every call a round trip.
            if self._as_counted(answers):
                return ""
            # Inside the lock: another call's answer must not be learned between the read and its use.
            shown = counter()
            adding = self._in_flight
            # The counter restarted, though the answer to obliterate has not come yet.
            if self._obliterations and not self._restarted and 0 < shown <= adding:
                self._restart_count()
            gone = shown == 0 and self._added_before > 0
            # An obliteration resets the counter. Jobs that it removed were added before, though their answer comes now.
            before = self._added_before if gone else max(self.added, shown - adding)
            deviations = [self._learn(answer, before + place, shown) for place, answer in enumerate(answers, start=1)]
            if not gone:
                self.added, self._added_before = max(self.added, before + len(answers)), 0
            return next(filter(None, deviations), "")

    def learn_of_flow(self, answer: str | None) -> str:
        """Learn the id of a flow node, for which Node draws a UUID. Returns the deviation, or an empty text."""
        with self._lock:
            self.added += 1
            if answer is NOT_GENERATED or answer in self._of_scenario:
                return ""
            is_uuid = _UUID4.fullmatch(answer) is not None
            if not is_uuid:
                self._made_up.add(answer)
            self._put(answer if is_uuid else str(uuid.uuid4()), answer)
            return "" if is_uuid else f"{answer!r} for a job of a flow"

    def duplicate_to_scenario(self, job: str) -> str:
        """The id that a job would have had if it were not a duplicate: only events contain it.

        A client with other ids generates one for it; they match the unreported numbers in order.
        """
        with self._lock:
            if not self.knows(job) and self._unreported and (self.differ or not job.isdecimal()):
                self._made_up.add(job)
                self._put(self._unreported.popleft(), job)
            return self.to_scenario(job)

    @contextmanager
    def obliterating(self, is_gone: Callable[[], bool]) -> Iterator[None]:
        """The block in which the queue is obliterated: the counter restarts, and new jobs get the ids of old ones.

        `is_gone` checks in Redis whether it happened, because the client's answer may be lost.
        """
        with self._lock:
            self._obliterations += 1
        refused = False
        try:
            yield
        except (OperationFailed, OperationUnsupported):
            refused = True
            raise
        finally:
            # Outside the lock, because it reads Redis.
            gone = not refused and is_gone()
            with self._lock:
                self._obliterations -= 1
                if gone and not self._restarted:
                    self._restart_count()
                self._restarted = False

    def _restart_count(self) -> None:
        self._added_before, self.added, self._restarted = self.added, 0, True
        for known in (self._of_client, self._of_scenario, self._user_named):
            known.clear()

    def _as_counted(self, answers: Sequence[str | None]) -> bool:
        """Learn the ids if they are exactly the next numbers of the count. This needs no read of Redis' counter."""
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
                # A duplicate: Redis counted it, but its answer names the existing job.
                self._unreported.append(str(self.added))
            else:
                self._put(answer, answer)
        return True

    def _learn(self, answer: str | None, number: int, shown: int) -> str:
        if answer is NOT_GENERATED:
            return ""
        if self.knows(answer):
            self._unreported.append(str(number))
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
        """Whether the id is a number that Redis' counter gave; stricter after the client has generated other ids."""
        if not (answer.isascii() and answer.isdecimal()) or answer in self._of_client:
            return False
        return (self.added if self.differ else 0) < int(answer) <= shown

    def _put(self, of_scenario: str, of_client: str) -> None:
        self._of_client[of_scenario] = of_client
        self._of_scenario[of_client] = of_scenario
        self.differ = self.differ or of_scenario != of_client
        if not re.fullmatch(PLAIN_ID, of_client):
            self.unusual = (*self.unusual, of_client)
