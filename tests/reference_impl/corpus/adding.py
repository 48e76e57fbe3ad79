"""Queue.add and Queue.addBulk: every job option of 5.62.0, deduplication, the forms of values, and what is refused."""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    DriverCall,
    Step,
    add,
    add_bulk,
    case,
    complete,
    do,
    fail,
    one,
    queue,
    redis,
    take,
    tick,
    worker,
)


def _twice(name: str, **opts: Any) -> CorpusCase:
    """Add two jobs with the same options, and read what became of them."""
    return case(name, queue(), add("first", '{"a":1}', **opts), add("second", **opts), *_read("1"))


def _read(job: str) -> tuple[Step, ...]:
    return do("queue.getJob", job=job), do("queue.getJobCounts", types=[])


def _with_defaults(**opts: Any) -> DriverCall:
    return queue(defaultJobOptions=opts)


ADD_CASES = (
    _twice("no-options"),
    _twice("delay", delay=5000),
    _twice("delay-of-a-tenth", delay=0.1),
    _twice("delay-with-fraction", delay=1.5),
    _twice("delay-zero", delay=0),
    _twice("delay-negative", delay=-5),
    _twice("delay-as-text", delay="10"),
    _twice("delay-of-a-century", delay=3_155_760_000_000),
    case("delays-of-one-instant", queue(), *[add(f"n{number}", delay=7) for number in range(5)]),
    _twice("priority", priority=7),
    _twice("priority-zero", priority=0),
    _twice("priority-at-its-limit", priority=2_097_152),
    _twice("priority-negative", priority=-3),
    _twice("priority-and-delay", priority=2, delay=10),
    _twice("priority-and-lifo", priority=3, lifo=True),
    case("priorities-mixed", queue(), *[add(f"n{value}", priority=value) for value in (5, 1, 3, 1, 0, 5)]),
    _twice("lifo", lifo=True),
    _twice("lifo-false", lifo=False),
    case("lifo-among-others", queue(), add("a"), add("b", lifo=True), add("c"), add("d", lifo=True)),
    _twice("job-id", jobId="mine"),
    _twice("job-id-of-three-parts", jobId="a:b:c"),
    _twice("job-id-empty", jobId=""),
    _twice("job-id-like-a-number", jobId="012"),
    _twice("job-id-beyond-ascii", jobId="é-\U0001f600"),
    _twice("job-id-of-a-queue-key", jobId="meta"),
    _twice("timestamp", timestamp=1_234_567_890_123),
    _twice("timestamp-zero", timestamp=0),
    _twice("timestamp-with-fraction", timestamp=1_700_000_000_000.5),
    _twice("timestamp-and-delay", timestamp=1_600_000_000_000, delay=1000),
    _twice("attempts", attempts=3),
    _twice("attempts-zero", attempts=0),
    _twice("attempts-null", attempts=None),
    _twice("backoff-as-number", attempts=3, backoff=100),
    _twice("backoff-zero", backoff=0),
    _twice("backoff-null", backoff=None),
    _twice("backoff-fixed", attempts=3, backoff={"type": "fixed", "delay": 10}),
    _twice("backoff-jitter", attempts=3, backoff={"type": "fixed", "delay": 10, "jitter": 0.5}),
    _twice("backoff-jitter-of-all", backoff={"type": "exponential", "delay": 10, "jitter": 1}),
    _twice("backoff-exponential", backoff={"type": "exponential", "delay": 1.5}),
    _twice("backoff-of-ones-own", backoff={"type": "mine"}),
    _twice("remove-on-complete", removeOnComplete=True),
    _twice("remove-on-complete-number", removeOnComplete=5),
    _twice("remove-on-fail", removeOnFail=True),
    _twice("remove-on-fail-age-and-count", removeOnFail={"age": 10, "count": 3}),
    _twice("remove-nothing", removeOnComplete=False, removeOnFail=False),
    _twice("keep-logs", keepLogs=3),
    _twice("stack-trace-limit", stackTraceLimit=2),
    _twice("size-limit-just-kept", sizeLimit=7),
    _twice("fail-parent-on-failure", failParentOnFailure=True),
    _twice("continue-parent-on-failure", continueParentOnFailure=True),
    _twice("ignore-dependency-on-failure", ignoreDependencyOnFailure=True),
    _twice("remove-dependency-on-failure", removeDependencyOnFailure=True),
    _twice("flags-that-are-false", failParentOnFailure=False, removeDependencyOnFailure=False),
    _twice("telemetry", telemetry={"metadata": "m", "omitContext": True}),
    _twice("telemetry-metadata-only", telemetry={"metadata": '{"traceparent":"00"}'}),
    _twice("telemetry-empty", telemetry={}),
    _twice("repeat-job-key", repeatJobKey="k"),
    _twice("prev-millis", prevMillis=1_700_000_000_000),
    _twice("unknown-option", zz=1, aa={"b": [1, None]}),
    _twice("stored-names-as-options", de={"id": "d"}, kl=3, fpof=True),
    _twice(
        "all-at-once", delay=3, attempts=2, backoff=5, lifo=True, keepLogs=1, removeOnFail=9, timestamp=5, sizeLimit=99
    ),
    case("default-options", _with_defaults(attempts=4, backoff=7, delay=20), add("a"), add("b", attempts=1, delay=0)),
    case(
        "default-options-nested", _with_defaults(removeOnComplete={"count": 5}), add("a", removeOnComplete={"age": 1})
    ),
    case("default-priority-and-lifo", _with_defaults(priority=4, lifo=True), add("a"), add("b", priority=0)),
    case("default-limits", _with_defaults(keepLogs=2, stackTraceLimit=1, sizeLimit=4), add("a"), add("b", '{"c":1}')),
    case(
        "into-a-paused-queue",
        queue(),
        do("queue.pause"),
        add("a"),
        add("b", lifo=True),
        add("c", priority=1),
        add(delay=9),
    ),
    case("into-a-full-queue", queue(), do("queue.setGlobalConcurrency", concurrency=1), add("a"), add("b", priority=1)),
)


BULK_CASES = (
    case("empty", queue(), add_bulk()),
    case("one", queue(), add_bulk(one("a", '{"x":1}')), do("queue.getJob", job="1")),
    case("many", queue(), add_bulk(*[one(f"n{number}", str(number)) for number in range(60)])),
    case(
        "every-kind", queue(), add_bulk(one(), one(delay=5), one(priority=3), one(lifo=True), one(delay=5, priority=1))
    ),
    case("ids", queue(), add_bulk(one(jobId="a"), one(), one(jobId="a"), one(jobId="b")), do("queue.count")),
    case(
        "options", queue(), add_bulk(one(attempts=2, backoff=5), one(keepLogs=1), one(timestamp=1, removeOnFail=True))
    ),
    case("default-options", queue(defaultJobOptions={"attempts": 3}), add_bulk(one(), one(attempts=1))),
    case("deduplication", queue(), add_bulk(*[one(f"n{n}", deduplication={"id": "d"}) for n in range(3)])),
    case(
        "parents",
        *(queue(), add("parent"), add("other")),
        add_bulk(
            one("child", parent={"id": "1", "queue": f"{PREFIX}:q"}),
            one("orphan", parent={"id": "9", "queue": f"{PREFIX}:q"}),
            one("child", jobId="c", parent={"id": "1", "queue": f"{PREFIX}:q"}),
            one("taken", jobId="c", parent={"id": "2", "queue": f"{PREFIX}:q"}),
        ),
        do("job.getDependencies", job="1"),
    ),
    case("paused", queue(), do("queue.pause"), add_bulk(one("a"), one("b", priority=2), one("c", delay=3))),
)


_OWNER = do("queue.getDeduplicationJobId", id="d")
_MINUTE = {"id": "d", "ttl": 60_000}


def _thrice(**dedup: Any) -> tuple[Step, ...]:
    return tuple(add(f"n{number}", str(number), deduplication={"id": "d", **dedup}) for number in range(3))


DEDUPLICATION_CASES = (
    case("simple", queue(), *_thrice(), _OWNER),
    case("ttl", queue(), *_thrice(ttl=60_000), _OWNER),
    case("ttl-zero", queue(), *_thrice(ttl=0), _OWNER),
    case("extend", queue(), *_thrice(ttl=60_000, extend=True), _OWNER),
    case("replace-without-delay", queue(), *_thrice(replace=True), _OWNER),
    case(
        "replace",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={"id": "d", "replace": True}) for n in range(3)],
        _OWNER,
    ),
    case(
        "throttle-and-replace",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={**_MINUTE, "replace": True}) for n in range(3)],
    ),
    case(
        "debounce-in-full",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={**_MINUTE, "replace": True, "extend": True}) for n in range(3)],
        _OWNER,
    ),
    case(
        "old-name", queue(), add("a", debounce=_MINUTE), add("b", debounce=_MINUTE), do("queue.getJob", job="1"), _OWNER
    ),
    case(
        "both-names", queue(), add("a", debounce={"id": "x"}, deduplication={"id": "y"}), add("b", debounce={"id": "x"})
    ),
    case("prioritized", queue(), *[add(f"n{n}", priority=2, deduplication={"id": "d"}) for n in range(2)]),
    case("id-with-colons", queue(), *[add(f"n{n}", deduplication={"id": "a:b:é"}) for n in range(2)]),
    case("duplicate-id-comes-first", queue(), *[add("n", jobId="j", deduplication={"id": "d"}) for _ in range(2)]),
    case("ends-with-completion", queue(), worker(), *_thrice(), take(), complete("1"), _OWNER, *_thrice()),
    case("ends-with-failure", queue(), worker(), *_thrice(), take(), fail("1"), _OWNER, *_thrice()),
    case(
        "outlives-completion-with-ttl",
        queue(),
        worker(),
        *_thrice(ttl=60_000),
        take(),
        complete("1"),
        *_thrice(ttl=60_000),
    ),
    case("ends-with-removal", queue(), *_thrice(), do("job.remove", job="1"), _OWNER, *_thrice()),
    case("ends-with-its-key", queue(), *_thrice(), do("queue.removeDeduplicationKey", id="d"), _OWNER, *_thrice()),
    case("no-such-key", queue(), do("queue.removeDeduplicationKey", id="x"), do("queue.getDeduplicationJobId", id="x")),
    case("expired", queue(), *_thrice(ttl=60_000), redis("DEL", f"{PREFIX}:q:de:d"), *_thrice(ttl=60_000)),
    case(
        "retried-job-keeps-it",
        queue(),
        worker(),
        *[add(f"n{n}", attempts=3, deduplication={"id": "d"}) for n in range(2)],
        take(),
        fail("1"),
        tick(1),
        add("x", deduplication={"id": "d"}),
    ),
)


_TEXTS = {
    "ascii": "plain",
    "empty": "",
    "quotes": 'a"b\\c/d',
    "control": "\x00\b\t\n\x0b\f\r\x1f\x7f",
    "latin": "äöüß é",
    "beyond-bmp": "\U0001f600\U00010000",
    "separators": "\u2028\u2029\ufeff",
    "31-bytes": "x" * 31,
    "32-bytes": "x" * 32,
    "63-units": "é" * 63,
    "64-units": "é" * 64,
    "255-bytes": "y" * 255,
    "256-bytes": "y" * 256,
    "70000-bytes": "z" * 70_000,
    "1000-emoji": "\U0001f600" * 1000,
}
"""Lengths at which MessagePack changes the header of a text, and texts that JSON or Lua escape."""

_DATA = {
    "null": "null",
    "number": "1.50",
    "text": '"a"',
    "list": " [ 1 , 2 ] ",
    "doubled-names": '{"a":1.0,"a":2}',
    "numbers-at-the-edge-of-doubles": "[1e300,12345678901234567000,-0,1e-7]",
    "escaped": '"\\u0000\\ud800\\u00e9 \\/"',
    "index-names": '{"10":1,"9":2,"b":3}',
    "deep": "[" * 60 + "]" * 60,
    "large": '"' + "d" * 200_000 + '"',
}

_OPTIONS: dict[str, object] = {
    "integers": [0, 1, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296, 9007199254740992],
    "negative-integers": [-1, -31, -32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649],
    "floats": [0.1, 1.5, -2.25, 1e300, 5e-324, 1e15, 123456789012345, 1e14, 1.0, -0.0],
    "texts": ["", "é", "/", '"', "\u007f", "x" * 32, "x" * 300],
    "nothing": [None, True, False],
    "empty": [{}, [], [None], {"a": None}],
    "holes": [1, None, 2],
    "nested": {"a": {"b": {"c": [1, {"d": 2}]}}},
    "order": {"dd": 1, "cc": 2, "bb": 3, "aa": 4, "10": 5, "9": 6, "01": 7, "-1": 8},
    "15-members": {f"k{number}": number for number in range(15)},
    "16-members": {f"k{number}": number for number in range(16)},
    "many-members": {f"name {number}": [number] for number in range(300)},
    "15-elements": list(range(15)),
    "16-elements": list(range(16)),
    "many-elements": list(range(70_000)),
    "foreign-names": {"": 1, "é": 2, "\U0001f600": 3, "a/b": 4, "x" * 40: 5},
}


def _named(kind: str, name: str) -> CorpusCase:
    return case(f"name-{kind}", queue(), add(name), do("queue.getJob", job="1"))


def _holding(kind: str, data: str) -> CorpusCase:
    return case(f"data-{kind}", queue(), add("a", data), do("queue.getJob", job="1"))


def _optional(kind: str, value: object) -> CorpusCase:
    return case(f"option-{kind}", queue(), add("a", custom=value), do("queue.getJob", job="1"))


_MANY: dict[str, Any] = {f"o{number}": number for number in range(40)}

VALUE_CASES = (
    *(_named(kind, name) for kind, name in _TEXTS.items()),
    *(_holding(kind, data) for kind, data in _DATA.items()),
    *(_optional(kind, value) for kind, value in _OPTIONS.items()),
    case("many-options", queue(), add("a", **_MANY)),
    case(
        "one-text-in-every-place", queue(), add("é\U0001f600/", '"é\U0001f600/"', jobId="é\U0001f600", é="é\U0001f600/")
    ),
)


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


def _refused(name: str, opts: dict[str, Any]) -> CorpusCase:
    """Refused alone and in a bulk, of which nothing is stored if the client itself refuses."""
    bulk = add_bulk(one("fine"), one("job", '{"ä":1}', **opts), one("fine too"))
    return case(name, queue(), add("job", '{"ä":1}', **opts), bulk, do("queue.count"))


REFUSED_CASES = (
    *(_refused(name, opts) for name, opts in _REFUSED.items()),
    case("queue-name-with-colon", queue("q", name="a:b")),
    case("queue-name-empty", queue("q", name="")),
    case("queue-name-beyond-ascii", queue("q", name="é q"), add("a")),
    case("data-over-the-limit-in-utf-8", queue(), add("a", '"éé"', sizeLimit=5), add("a", '"éé"', sizeLimit=6)),
    case("wait-is-no-list", queue(), redis("SET", f"{PREFIX}:q:wait", "x"), add("a"), do("queue.getJob", job="1")),
    case("delayed-is-no-set", queue(), redis("SET", f"{PREFIX}:q:delayed", "x"), add("a", delay=5)),
)
