"""Arguments of calls: JSON texts and options, valid ones, odd ones, and ones that have to be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.fuzz.strategies.vocabulary import Vocabulary

Options = dict[str, Any]

PLAIN_TEXTS = ("{}", '{"n":1}', "null", '"text"', "[]", "0", "true")
"""Data of most jobs; the simplest first, because shrinking goes that way."""

TROUBLEMAKERS = (
    '{"__proto__":{"polluted":true}}',
    '{"constructor":{"prototype":{"x":1}}}',
    '{"1":"a","2":"b","01":"c","-1":"d","x":0}',
    '{"0":3,"4294967294":1,"4294967295":2}',
    '{"true":1,"null":2,"undefined":3,"NaN":4}',
    '{"":0," ":1}',
    '{"toJSON":1,"length":2,"hasOwnProperty":3}',
    '{"\u00e9":1,"e\u0301":2}',
    "9007199254740991",
    "9007199254740993",
    "-9007199254740993",
    "18446744073709551616",
    "1e+21",
    "1e-7",
    "5e-324",
    "1.7976931348623157e+308",
    "0.1",
    "123456789012345680",
    '"\\ud800"',
    '"\\udfff\\ud800"',
    '["\\ud83d","\\ude00"]',
    '"\\u0000"',
    '"\\u001f\\b\\f\\n\\r\\t\\"\\\\/"',
    '"\u007f\u0080\u2028\u2029\ufeff"',
    '"\U0001f389\U0002070e\U000e0001\U0010ffff"',
    '{"a":null,"b":[null,[],{}]}',
    "[" * 60 + "]" * 60,
    '{"k":' * 40 + "1" + "}" * 40,
    json.dumps("x" * 3000),
)
"""Texts as `JSON.stringify` writes them, so that a client which parses and writes them again must give the same."""

INEXACT_TEXTS = (
    "-0",
    "-0.0",
    "1.0",
    "1E2",
    "1e400",
    ' { "spaced" : 1 } ',
    '{"twice":1,"twice":2}',
    '"\\u00e9\\/"',
    "0.30000000000000004000",
    '{"b":1,"a":2,"1":3}',
    '{"4294967294":1,"4294967295":2,"0":3}',
)
"""Texts that `JSON.stringify` would write otherwise: only for clients that pass a text through byte for byte."""

_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.none(),
    st.text(st.characters(exclude_categories=()), max_size=8),
)
_JSON_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abc:_{}é\U0001f389", max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)


def as_javascript_writes(value: Any) -> str:
    """A value as `JSON.stringify` writes it; lone surrogates as lower-case escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # pairs become one character
    return "".join(f"\\u{ord(sign):04x}" if "\ud800" <= sign <= "\udfff" else sign for sign in text)


_ANY_JSON = _JSON_VALUES.map(as_javascript_writes)
_NORMAL = st.sampled_from(PLAIN_TEXTS * 6 + TROUBLEMAKERS) | _ANY_JSON
_EXACT = st.sampled_from(PLAIN_TEXTS * 6 + TROUBLEMAKERS + INEXACT_TEXTS) | _ANY_JSON


def json_texts(*, exact: bool) -> st.SearchStrategy[str]:
    """JSON texts. `exact`: also those that only survive if texts are passed through byte for byte."""
    return _EXACT if exact else _NORMAL


KEPT: tuple[Any, ...] = (
    *(1, True, {"count": 1}, 2, {"age": 20, "count": 1}, {"age": 20}, False, 0, {"count": 0}, -1),
    {"age": 20, "limit": 1},
)
"""Values of removeOnComplete and removeOnFail. Ages are in seconds."""

_OPTION_VALUES: dict[str, tuple[Any, ...]] = {
    "priority": (1, 2, 0, 2_097_152, 10),
    "lifo": (True, True, False),
    "removeOnComplete": KEPT,
    "removeOnFail": KEPT,
    "keepLogs": (1, 2, 0),
    "timestamp": (1_699_999_000_000, 1_700_000_050_000, 0),
    "stackTraceLimit": (1, 0, 2),
    "sizeLimit": (10, 2, 100_000),
    "custom": ("x", 1.5, [1, 2], {"nested": {"deep": True}}),
    "failParentOnFailure": (True,),
    "continueParentOnFailure": (True,),
    "ignoreDependencyOnFailure": (True,),
    "removeDependencyOnFailure": (True,),
    "telemetry": ({"metadata": "m"}, {"metadata": "m", "omitContext": True}, {"omitContext": True}),
}
"""Values of options that are not in the vocabulary, the simplest first."""

_OF_VOCABULARY: dict[str, Callable[[Vocabulary], tuple[Any, ...]]] = {
    "delay": lambda words: words.delays,
    "attempts": lambda words: words.attempts,
    "backoff": lambda words: words.backoffs,
    "jobId": lambda words: words.job_ids,
}

_REFUSED: tuple[Options, ...] = (
    {"priority": 2_097_153},
    {"priority": -1},
    {"priority": 1.5},
    {"jobId": "12"},
    {"jobId": "a:b"},
    {"jobId": "a:b:c:d"},
    {"jobId": "0"},
    {"deduplication": {}},
    {"deduplication": {"id": ""}},
    {"debounce": {}},
    {"failParentOnFailure": True, "continueParentOnFailure": True},
    {"delay": -5},
    {"attempts": -1},
)
DEDUPLICATIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("ttl",),
    ("ttl", "extend"),
    ("ttl", "replace"),
    ("ttl", "extend", "replace"),
    ("replace",),
)
"""Members of the option `deduplication`, besides its id."""

KEEPING_THE_LAST = tuple((*members, "keepLastIfActive") for members in DEDUPLICATIONS)

FAILURES = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)
"""Effects of a child's failure on its parent; a job has at most one of these options."""

_FEW_KEPT: tuple[tuple[Options, ...], ...] = (
    ({"removeOnComplete": 1},),
    ({"removeOnFail": 1},),
    ({"removeOnComplete": 2, "removeOnFail": 2},),
    ({"removeOnComplete": {"age": 20, "count": 1}},),
    ({"removeOnComplete": {"age": 20, "limit": 1}, "removeOnFail": {"age": 20, "limit": 1}}, {}),
)

_OFTEN = {"delay": 4, "attempts": 6, "priority": 3, "removeOnComplete": 4, "removeOnFail": 4, "lifo": 4, "telemetry": 2}
"""Weights: options that change the states of a job come more often than those that are only stored."""

_NAMES = st.sampled_from([name for name in (*_OF_VOCABULARY, *_OPTION_VALUES) for _ in range(_OFTEN.get(name, 1))])
_ONE_OF = {name: st.sampled_from(values) for name, values in _OPTION_VALUES.items()}
_REFUSALS = st.sampled_from(_REFUSED)
_DEDUPLICATIONS = {False: st.sampled_from(DEDUPLICATIONS), True: st.sampled_from((*DEDUPLICATIONS, *KEEPING_THE_LAST))}
_KIND = st.sampled_from(("none",) * 5 + ("one",) * 8 + ("some",) * 6 + ("dedup",) * 3 + ("debounce", "refused"))
_FAILURE = st.sampled_from(("",) * 3 + FAILURES)
_MEASURE = st.sampled_from(range(10))
_FEW = st.lists(_NAMES, min_size=2, max_size=4).map(dict.fromkeys)


def _values(name: str, words: Vocabulary) -> st.SearchStrategy[Any]:
    return st.sampled_from(_OF_VOCABULARY[name](words)) if name in _OF_VOCABULARY else _ONE_OF[name]


@st.composite
def job_options(draw: st.DrawFn, words: Vocabulary) -> Options:
    """JobsOptions of a job without parent."""
    match draw(_KIND):
        case "one":
            return {name: draw(_values(name, words)) for name in (draw(_NAMES),)}
        case "some":
            return {name: draw(_values(name, words)) for name in draw(_FEW)}
        case "dedup" | "debounce" as kind:
            return draw(deduplicated(words, "deduplication" if kind == "dedup" else "debounce"))
        case "refused":
            return dict(draw(_REFUSALS))
    return {}


@st.composite
def favoured_options(draw: st.DrawFn, favourites: tuple[Options, ...], words: Vocabulary) -> Options:
    """Mostly one of the sequence's own favourites, sometimes none, sometimes anything."""
    measure = draw(_MEASURE)
    if measure < 3 or not favourites:
        return {}
    if measure > 7:
        return draw(job_options(words))
    return dict(draw(st.sampled_from(favourites)))


@st.composite
def favourites(draw: st.DrawFn, words: Vocabulary) -> tuple[Options, ...]:
    """The favourites of a sequence. Sometimes all of them keep few jobs, which only shows if several jobs end alike."""
    if draw(_MEASURE) > 7:
        return draw(st.sampled_from(_FEW_KEPT))
    return tuple(draw(st.lists(job_options(words), min_size=1, max_size=3)))


@st.composite
def deduplicated(draw: st.DrawFn, words: Vocabulary, option: str = "deduplication") -> Options:
    """Options with a deduplication, sometimes with a delay, which is what replacing needs."""
    members: Options = {"id": draw(st.sampled_from(words.deduplications))}
    for name in draw(_DEDUPLICATIONS[words.keeps_last]):
        members[name] = draw(st.sampled_from((*words.lives, 0))) if name == "ttl" else True
    delay = {"delay": draw(st.sampled_from(words.delays))} if draw(st.booleans()) else {}
    return {option: members, **delay}


_NOT_OF_NODES = frozenset({"deduplication", "debounce", "jobId", *FAILURES})


@st.composite
def node_options(
    draw: st.DrawFn, job_id: str, favourites: tuple[Options, ...], words: Vocabulary, *, child: bool
) -> Options:
    """Options of a node of a flow. It always has an id, because generated ones are random."""
    if not child and draw(_MEASURE) == 9:
        return {"jobId": job_id} | draw(deduplicated(words))
    options = draw(favoured_options(favourites, words))
    options = {name: value for name, value in options.items() if name not in _NOT_OF_NODES}
    failure = draw(_FAILURE) if child else ""
    return {"jobId": job_id} | options | ({failure: True} if failure else {})


WORKER_OPTIONS: tuple[Options, ...] = (
    {},
    {"name": "worker"},
    {"lockDuration": 60_000},
    {"maxStalledCount": 0},
    {"maxStalledCount": 2},
    {"limiter": {"max": 1, "duration": 20_000}},
    {"limiter": {"max": 2, "duration": 60_000}},
    {"metrics": {"maxDataPoints": 2}},
    {"removeOnComplete": {"count": 1}},
    {"removeOnFail": {"count": 0}},
    {"removeOnComplete": {"age": 20}, "removeOnFail": {"age": 20}},
    {"stalledInterval": 60_000},
    {"maxStartedAttempts": 1},
    {"removeOnComplete": {"age": 20, "limit": 1}},
)
REFUSED_WORKER_OPTIONS: tuple[Options, ...] = (
    {"maxStalledCount": -1},
    {"stalledInterval": 0},
    {"maxStartedAttempts": -1},
)
QUEUE_OPTIONS: tuple[Options, ...] = (
    {},
    {"defaultJobOptions": {"attempts": 2}},
    {"defaultJobOptions": {"removeOnComplete": True, "priority": 1}},
    {"skipMetasUpdate": True},
    {"streams": {"events": {"maxLen": 5}}},
    {"skipVersionCheck": True},
)
PATTERNS: tuple[Options, ...] = (
    {"pattern": "*/20 * * * * *"},
    {"pattern": "0 0 12 * * *", "tz": "Europe/Berlin"},
    {"pattern": "0 */5 * * * *", "limit": 1},
    {"pattern": "*/20 * * * * *", "startDate": 1_700_000_100_000},
    {"pattern": "*/20 * * * * *", "endDate": 1_700_000_030_000},
    {"pattern": "*/20 * * * * *", "immediately": True},
    {"pattern": "not a pattern"},
)
WITH_EVERY: tuple[Options, ...] = (
    {},
    {"limit": 2},
    {"immediately": True},
    {"startDate": 1_700_000_100_000},
    {"endDate": 1_700_000_090_000},
    {"offset": 7000},
    {"offset": 3000},
    {"endDate": None},
    {"offset": "7000"},
    {"count": 1, "limit": 2},
    {"jobId": "of-old", "key": "k"},
    {"pattern": "* * * * * *"},
)
"""Options of a scheduler besides its period."""
TEMPLATES: tuple[Options, ...] = ({}, {"attempts": 2}, {"priority": 1}, {"removeOnComplete": True}, {"delay": 20_000})

_EVERY_OR_PATTERN = st.sampled_from(("every",) * 8 + ("pattern",) * 5 + ("neither", "zero"))
_PATTERNS, _WITH_EVERY = st.sampled_from(PATTERNS), st.sampled_from(WITH_EVERY)


@st.composite
def repeats(draw: st.DrawFn, words: Vocabulary) -> Options:
    """RepeatOptions of a scheduler."""
    match draw(_EVERY_OR_PATTERN):
        case "every":
            return {"every": draw(st.sampled_from(words.periods)), **draw(_WITH_EVERY)}
        case "pattern":
            return dict(draw(_PATTERNS))
        case "zero":
            return {"every": 0}
    return {}
