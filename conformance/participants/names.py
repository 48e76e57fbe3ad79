"""Translation between the names of a scenario and those of its clients: the prefix, the queues and job ids.

A scenario has its own prefix, and calls its queue `q` and its first job `1`. A client with a fixed prefix works under
that prefix instead, in a queue whose name is unique to the scenario; a client with other job ids keeps them. Calls and
Redis commands are translated to the client's names, and answers and values to the scenario's, so neither sees the
other's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from conformance.participants.job_ids import PLAIN_ID, JobIds
from conformance.protocol.keys import glob_escaped

_QUEUE = r"[^:\"\\]+"
_JOB, _DUPLICATE = "jobId", "deduplicatedJobId"


class Names:
    """The names that clients use for one prefix of a scenario, its queues and their jobs."""

    def __init__(self, prefix: str, *, fixed_prefix: str | None = None) -> None:
        self.prefix = prefix
        """The scenario's name of the prefix; unique to the scenario."""
        self.fixed_prefix = fixed_prefix
        """The only prefix that a client there can use, or None."""
        self.deviations: dict[str, str] = {}
        """Names that the client under test gives differently from Node: locator to an observed example."""
        self._ids: dict[str, JobIds] = {}
        ours, theirs = (f"{re.escape(text)}:({_QUEUE}" for text in (prefix, fixed_prefix or prefix))
        own_queue = f"?)-{re.escape(prefix)}" if fixed_prefix else ")"
        self._in_scenario = re.compile(f"{ours})(?::({PLAIN_ID}))?")
        self._queue_at_client = theirs + own_queue
        self._unusual: tuple[str, ...] = ()
        self._at_client = _keys(self._queue_at_client, self._unusual)

    @property
    def same(self) -> bool:
        """Whether the clients use the scenario's names, as far as seen."""
        # A copy, because a thread of `meanwhile` may add a queue during the loop.
        return self.fixed_prefix is None and all(ids.same for ids in list(self._ids.values()))

    def ids(self, queue: str) -> JobIds:
        """The ids of a queue's jobs."""
        return self._ids.setdefault(queue, JobIds())

    def queues_with_other_ids(self) -> dict[str, JobIds]:
        """The queues, by the scenario's names, in which some job's id differs from Node's."""
        return {queue: ids for queue, ids in list(self._ids.items()) if ids.differ}

    def ids_decide_order(self) -> bool:
        """Whether job ids decided some order: then other ids give another order, and steps cannot be compared."""
        return any(ids.decide_order for ids in list(self._ids.values()))

    # Prefix and queues.

    @property
    def client_prefix(self) -> str:
        """The prefix to give to clients."""
        return self.fixed_prefix or self.prefix

    @property
    def pattern(self) -> str:
        """A Redis glob that matches exactly the keys of this scenario."""
        queue = f"*-{glob_escaped(self.prefix)}:" if self.fixed_prefix else ""
        return f"{glob_escaped(self.client_prefix)}:{queue}*"

    def client_queue(self, queue: str) -> str:
        """The client's name of a queue: under a fixed prefix it is unique to this scenario."""
        return f"{queue}-{self.prefix}" if self.fixed_prefix and queue else queue

    def scenario_queue(self, queue: str) -> str:
        """The scenario's name of a client's queue."""
        return queue.removesuffix(f"-{self.prefix}") if self.fixed_prefix else queue

    def client_base(self, queue: str) -> str:
        """The start of a queue's keys in Redis, `PREFIX:QUEUE:`."""
        return f"{self.client_prefix}:{self.client_queue(queue)}:"

    # Full keys, anywhere in a text.

    def to_client(self, value: Any) -> Any:
        """A JSON value with every full key in its texts translated to the client's name."""
        return value if self.same else _mapped(value, self._text_to_client)

    def to_scenario(self, value: Any) -> Any:
        """A JSON value with every full key in its texts translated to the scenario's name."""
        return value if self.same else _mapped(value, self._text_to_scenario)

    def _text_to_client(self, text: str) -> str:
        # The containment test first: it spares the regular expression on megabytes of user data.
        return self._in_scenario.sub(self._key_to_client, text) if self.prefix in text else text

    def _text_to_scenario(self, text: str) -> str:
        if self.prefix not in text:
            return text
        unusual = tuple(job for ids in list(self._ids.values()) for job in ids.unusual)
        if unusual != self._unusual:
            # The pattern first: another thread must not take the old one for the new one.
            self._at_client, self._unusual = _keys(self._queue_at_client, unusual), unusual
        return self._at_client.sub(self._key_to_scenario, text)

    def _key_to_client(self, match: re.Match[str]) -> str:
        queue, job = match.groups()
        base = self.client_base(queue)
        # Without the final colon: the text names the queue itself.
        return base[:-1] if job is None else base + self.ids(queue).to_client(job)

    def _key_to_scenario(self, match: re.Match[str]) -> str:
        queue, job = match.groups()
        base = f"{self.prefix}:{queue}"
        return base if job is None else f"{base}:{self.ids(queue).to_scenario(job)}"

    # Texts that are bare job ids.

    def event_to_client(self, queue: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event stream entry, in the client's names."""
        ids = self.ids(queue)
        return _with_jobs(fields, {_JOB: ids.to_client, _DUPLICATE: ids.to_client}, self.to_client)

    def event_to_scenario(self, queue: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event stream entry, in the scenario's names."""
        ids = self.ids(queue)
        return _with_jobs(fields, {_JOB: ids.to_scenario, _DUPLICATE: ids.duplicate_to_scenario}, self.to_scenario)

    def opts_to_client(self, opts: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a job to add, with its parent in the client's names."""
        parent = opts.get("parent")
        found = self._in_scenario.fullmatch(str(parent.get("queue"))) if isinstance(parent, dict) else None
        if not isinstance(parent, dict) or found is None or not isinstance(parent.get("id"), str):
            return dict(opts)
        job = self.ids(found[1]).to_client(parent["id"])
        return {**opts, "parent": {**parent, "id": job, "queue": self._text_to_client(parent["queue"])}}

    def opts_to_scenario(self, queue: str, opts: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a job, without a `jobId` that the client generated: the user did not set it."""
        kept = {name: value for name, value in opts.items() if name != "jobId" or not self._made_up(queue, value)}
        parent = kept.get("parent")
        return {**kept, "parent": self.parent_to_scenario(parent)} if isinstance(parent, dict) else kept

    def parent_to_scenario(self, parent: Mapping[str, Any]) -> dict[str, Any]:
        """The parent of a job, in the scenario's names: `queue` or `queueKey` is the full name of its queue."""
        full = str(parent.get("queueKey") or parent.get("queue"))
        # The key may be in the scenario's names already, if its text was translated as a whole.
        found, job = self._at_client.fullmatch(full) or self._in_scenario.fullmatch(full), parent.get("id")
        renamed: dict[str, Any] = self.to_scenario(dict(parent))
        return {**renamed, "id": self.ids(found[1]).to_scenario(job)} if found and isinstance(job, str) else renamed

    def _made_up(self, queue: str, job: Any) -> bool:
        return isinstance(job, str) and self.ids(queue).is_made_up(job)


def _keys(queue: str, unusual: Iterable[str]) -> re.Pattern[str]:
    """The pattern of full keys in a text, of queues of this pattern. `unusual`: ids that are not plain."""
    # The longest first: one id may be the start of another.
    known = sorted(map(re.escape, unusual), key=len, reverse=True)
    return re.compile(f"{queue}(?::({'|'.join((*known, PLAIN_ID))}))?")


def _with_jobs(
    fields: Mapping[str, Any], jobs: Mapping[str, Callable[[str], str]], other: Callable[[Any], Any]
) -> dict[str, Any]:
    return {
        name: jobs[name](value) if name in jobs and isinstance(value, str) else other(value)
        for name, value in fields.items()
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with `change` applied to all its texts, keys included."""
    # No recursion: job data may be nested deeper than Python's limit of calls.
    result: list[Any] = []
    to_do: list[tuple[Any, Callable[[Any], None]]] = [(value, result.append)]
    for item, put in to_do:  # the list grows while it is read
        if isinstance(item, str):
            put(change(item))
        elif isinstance(item, dict):
            changed = {change(name): None for name in item}
            put(changed)
            to_do += [(inner, partial(changed.__setitem__, change(name))) for name, inner in item.items()]
        elif isinstance(item, list):
            places = [None] * len(item)
            put(places)
            to_do += [(inner, partial(places.__setitem__, at)) for at, inner in enumerate(item)]
        else:
            put(item)
    return result[0]
