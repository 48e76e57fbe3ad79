"""The border between a scenario's names and its clients': the prefix, the queues, and the ids of their jobs.

A scenario has a prefix of its own, calls its queue `q` and its first job `1`. A client with a fixed prefix works under
that prefix instead, in a queue whose name only this scenario has; a client that gives other ids keeps them. Neither has
to know of the other: what goes to a client or to Redis is said in its names, and what comes back in the scenario's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from conformance.participants.job_ids import JobIds
from conformance.protocol.keys import glob_escaped

_ID = r"[^\s:\"'\\,}\])]+"
_QUEUE = r"[^:\"\\]+"
_JOB, _DUPLICATE = "jobId", "deduplicatedJobId"


class Names:
    """What one prefix of a scenario, its queues and their jobs are called by the clients that work there."""

    def __init__(self, prefix: str, *, fixed_prefix: str | None = None) -> None:
        self.prefix = prefix
        """As the scenario knows it; nobody else uses it."""
        self.fixed_prefix = fixed_prefix
        """The only one that a client there can use, or None."""
        self.deviations: dict[str, str] = {}
        """What the client under test names otherwise than Node, by locator, with what was seen."""
        self._ids: dict[str, JobIds] = {}
        ours, theirs = (f"{re.escape(text)}:({_QUEUE}" for text in (prefix, fixed_prefix or prefix))
        own_queue = f"?)-{re.escape(prefix)}" if fixed_prefix else ")"
        self._in_scenario = re.compile(f"{ours})(?::({_ID}))?")
        self._at_client = re.compile(f"{theirs}{own_queue}(?::({_ID}))?")

    @property
    def same(self) -> bool:
        """Whether the clients have the scenario's names, as far as they have shown."""
        return self.fixed_prefix is None and all(ids.same for ids in list(self._ids.values()))

    def ids(self, queue: str) -> JobIds:
        """The ids of a queue's jobs."""
        return self._ids.setdefault(queue, JobIds())

    def queues_with_other_ids(self) -> dict[str, JobIds]:
        """The queues, by the scenario's names, in which some job has another id than with Node."""
        return {queue: ids for queue, ids in list(self._ids.items()) if ids.differ}

    def ids_decide_order(self) -> bool:
        """Whether jobs came in an order which other ids make another one: then nothing can be compared step by step."""
        return any(ids.decide_order for ids in list(self._ids.values()))

    # Prefix and queues.

    @property
    def client_prefix(self) -> str:
        """The prefix that the clients are given."""
        return self.fixed_prefix or self.prefix

    @property
    def pattern(self) -> str:
        """What exactly the keys of this scenario match, in Redis' glob language."""
        queue = f"*-{glob_escaped(self.prefix)}:" if self.fixed_prefix else ""
        return f"{glob_escaped(self.client_prefix)}:{queue}*"

    def client_queue(self, queue: str) -> str:
        """The queue's name for the client: under a fixed prefix one that no other scenario has."""
        return f"{queue}-{self.prefix}" if self.fixed_prefix and queue else queue

    def scenario_queue(self, queue: str) -> str:
        """The client's queue, by the scenario's name."""
        return queue.removesuffix(f"-{self.prefix}") if self.fixed_prefix else queue

    def client_base(self, queue: str) -> str:
        """What the keys of a queue begin with in Redis."""
        return f"{self.client_prefix}:{self.client_queue(queue)}:"

    # Full keys, wherever they stand in a text.

    def to_client(self, value: Any) -> Any:
        """JSON values, with every full key in their texts as the client writes it."""
        return value if self.same else _mapped(value, self._text_to_client)

    def to_scenario(self, value: Any) -> Any:
        """JSON values, with every full key in their texts as the scenario writes it."""
        return value if self.same else _mapped(value, self._text_to_scenario)

    def _text_to_client(self, text: str) -> str:
        return self._in_scenario.sub(self._key_to_client, text) if self.prefix in text else text

    def _text_to_scenario(self, text: str) -> str:
        return self._at_client.sub(self._key_to_scenario, text) if self.prefix in text else text

    def _key_to_client(self, found: re.Match[str]) -> str:
        queue, job = found.groups()
        base = self.client_base(queue)
        return base[:-1] if job is None else base + self.ids(queue).to_client(job)

    def _key_to_scenario(self, found: re.Match[str]) -> str:
        queue, job = found.groups()
        base = f"{self.prefix}:{queue}"
        return base if job is None else f"{base}:{self.ids(queue).to_scenario(job)}"

    # What speaks of jobs by their ids alone.

    def event_to_client(self, queue: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of the event stream, as the client would write it."""
        ids = self.ids(queue)
        return _with_jobs(fields, {_JOB: ids.to_client, _DUPLICATE: ids.to_client}, self.to_client)

    def event_to_scenario(self, queue: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of the event stream, as the scenario expects it."""
        ids = self.ids(queue)
        return _with_jobs(fields, {_JOB: ids.to_scenario, _DUPLICATE: ids.duplicate_to_scenario}, self.to_scenario)

    def opts_to_client(self, opts: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a job to add: its parent is known to the client by another name."""
        parent = opts.get("parent")
        found = self._in_scenario.fullmatch(str(parent.get("queue"))) if isinstance(parent, dict) else None
        if not isinstance(parent, dict) or found is None or not isinstance(parent.get("id"), str):
            return dict(opts)
        job = self.ids(found[1]).to_client(parent["id"])
        return {**opts, "parent": {**parent, "id": job, "queue": self._text_to_client(parent["queue"])}}

    def opts_to_scenario(self, queue: str, opts: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a job: without the id that the client made up, which is no option of the user's."""
        kept = {name: value for name, value in opts.items() if name != "jobId" or not self._made_up(queue, value)}
        parent = kept.get("parent")
        return {**kept, "parent": self.parent_to_scenario(parent)} if isinstance(parent, dict) else kept

    def parent_to_scenario(self, parent: Mapping[str, Any]) -> dict[str, Any]:
        """Who the parent of a job is: `queue` or `queueKey` is the full name of its queue."""
        full = str(parent.get("queueKey") or parent.get("queue"))
        # The key may stand there in the scenario's names already, as in a text that was renamed as a whole.
        found, job = self._at_client.fullmatch(full) or self._in_scenario.fullmatch(full), parent.get("id")
        renamed: dict[str, Any] = self.to_scenario(dict(parent))
        return {**renamed, "id": self.ids(found[1]).to_scenario(job)} if found and isinstance(job, str) else renamed

    def _made_up(self, queue: str, job: Any) -> bool:
        return isinstance(job, str) and self.ids(queue).is_made_up(job)


def _with_jobs(
    fields: Mapping[str, Any], jobs: Mapping[str, Callable[[str], str]], other: Callable[[Any], Any]
) -> dict[str, Any]:
    return {
        name: jobs[name](value) if name in jobs and isinstance(value, str) else other(value)
        for name, value in fields.items()
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with all its texts changed. Without recursion: data of jobs may be nested deeper than Python calls."""
    result: list[Any] = []
    to_do: list[tuple[Any, Callable[[Any], None]]] = [(value, result.append)]
    for item, put in to_do:  # it grows by what is inside
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
