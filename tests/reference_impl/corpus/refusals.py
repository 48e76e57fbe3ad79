"""What Queue.add and Queue.addBulk refuse, and with which words."""

from __future__ import annotations

from typing import Any

from .steps import PREFIX, Case, add, add_bulk, case, do, one, queue, redis

_FLAGS = (
    *("removeDependencyOnFailure", "continueParentOnFailure"),
    *("ignoreDependencyOnFailure", "failParentOnFailure"),
)

_REFUSED: dict[str, dict[str, Any]] = {
    "id-integer": {"jobId": "12"},
    "id-negative-integer": {"jobId": "-5"},
    "id-zero": {"jobId": "0"},
    "id-begins-with-zero": {"jobId": "0:1"},
    "id-begins-with-zero-three-parts": {"jobId": "0:a:b"},
    "id-with-colon": {"jobId": "a:b"},
    "id-with-three-colons": {"jobId": "a:b:c:d"},
    "priority-above-limit": {"priority": 2_097_153},
    "priority-with-fraction": {"priority": 1.5},
    "priority-as-text": {"priority": "1"},
    "size-limit": {"sizeLimit": 7},
    "deduplication-without-id": {"deduplication": {}},
    "deduplication-with-empty-id": {"deduplication": {"id": ""}},
    "debounce-without-id": {"debounce": {"ttl": 5}},
    "jitter-above-one": {"backoff": {"type": "fixed", "delay": 1, "jitter": 1.5}},
    "jitter-below-zero": {"backoff": {"type": "fixed", "delay": 1, "jitter": -0.5}},
    "two-failure-flags": {"failParentOnFailure": True, "ignoreDependencyOnFailure": True},
    "three-failure-flags": dict.fromkeys(_FLAGS[:3], True),
    "four-failure-flags": dict.fromkeys(_FLAGS, True),
    "parent-that-does-not-exist": {"parent": {"id": "9", "queue": f"{PREFIX}:q"}},
    "several-reasons": {"priority": 2.5, "jobId": "7", "deduplication": {}},
}


def _refused(name: str, opts: dict[str, Any]) -> Case:
    """Refused alone and in a bulk, of which nothing is stored if the client itself refuses."""
    bulk = add_bulk(one("fine"), one("job", '{"ä":1}', **opts), one("fine too"))
    return case(name, queue(), add("job", '{"ä":1}', **opts), bulk, do("queue.count"))


CASES = (
    *(_refused(name, opts) for name, opts in _REFUSED.items()),
    case("queue-name-with-colon", queue("q", name="a:b")),
    case("queue-name-empty", queue("q", name="")),
    case("queue-name-beyond-ascii", queue("q", name="é q"), add("a")),
    case("data-over-the-limit-in-utf-8", queue(), add("a", '"éé"', sizeLimit=5), add("a", '"éé"', sizeLimit=6)),
    case("wait-is-no-list", queue(), redis("SET", f"{PREFIX}:q:wait", "x"), add("a"), do("queue.getJob", job="1")),
    case("delayed-is-no-set", queue(), redis("SET", f"{PREFIX}:q:delayed", "x"), add("a", delay=5)),
)
