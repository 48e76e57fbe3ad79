"""Packing, options, backoff, error texts, keys: everything of the client that needs no Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from types import MappingProxyType
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.protocol import states
from conformance.protocol.job_fields import ALIAS_OF_OPTION, OPTION_OF_ALIAS
from conformance.protocol.keys import QueueKeys
from conformance.protocol.scripts import ErrorCode, error_text
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.cluster_nodes import KeysOfCommands
from conformance.reference_impl.connection.connection import flat_mapping
from conformance.reference_impl.connection.resp import encode_argument
from conformance.reference_impl.emitter import EventEmitter
from conformance.reference_impl.errors import (
    BullMQError,
    FailedChildren,
    InvalidArgument,
    ScriptError,
    UnrecoverableError,
    script_error,
)
from conformance.reference_impl.jobs import attempts, options
from conformance.reference_impl.jobs.attempts import stack_of
from conformance.reference_impl.jobs.record import JobRecord
from conformance.reference_impl.packing import pack, pack_fields, pack_known, pack_with
from conformance.reference_impl.scripts.move import FetchReply, keep_jobs, read_fetched
from conformance.reference_impl.telemetry.interface import SpanKind

FIVE_TEXTS = [
    (-1, "Missing key for job 7. CMD"),
    (-2, "Missing lock for job 7. CMD"),
    (-3, "Job 7 is not in the active state. CMD"),
    (-4, "Job 7 has pending dependencies. CMD"),
    (-5, "Missing key for parent job b:q:1. CMD"),
    (-6, "Lock mismatch for job 7. Cmd CMD from active"),
    (-7, "The parent job b:q:1 cannot be replaced. CMD"),
    (-8, "Job 7 belongs to a job scheduler and cannot be removed directly. CMD"),
    (-9, "Cannot complete job 7 because it has at least one failed child. CMD"),
    (-10, "Cannot create job scheduler iteration - job ID already exists. CMD"),
    (-11, "Cannot create job scheduler iteration - current and next time slots already have jobs. CMD"),
    (-99, "Unknown code -99 error for 7. CMD"),
]


@pytest.mark.parametrize(("code", "text"), FIVE_TEXTS)
def test_error_texts(code: int, text: str) -> None:
    assert error_text(code, command="CMD", job="7", parent="b:q:1", state="active") == text
    error = script_error(code, command="CMD", job="7", parent="b:q:1", state="active")
    assert (str(error), error.code) == (text, code)
    assert isinstance(error, UnrecoverableError) is (code == ErrorCode.FAILED_CHILDREN)


def test_failed_children_is_both_a_refusal_and_unrecoverable() -> None:
    error = script_error(-9, command="moveToFinished", job="1")
    assert isinstance(error, FailedChildren)
    assert isinstance(error, ScriptError)


def test_unknown_parts_read_as_in_node() -> None:
    assert error_text(-5, command="addJob") == "Missing key for parent job undefined. addJob"


def test_integers_beyond_32_bits_travel_as_doubles() -> None:
    assert pack(2**32 - 1) == b"\xce\xff\xff\xff\xff"
    assert pack(2**32)[0] == 0xCB
    assert pack(-(2**31) - 1)[0] == 0xCB
    assert pack(5.0) == b"\x05"
    assert pack(0.5)[0] == 0xCB
    assert pack(True) == b"\xc3"


def test_surrogates_in_short_and_long_names() -> None:
    assert pack("\ud800") == b"\xa3\xed\xa0\x80"
    assert msgpack.unpackb(pack("\ud800" + "x" * 80)) == "\ufffd" + "x" * 80


def test_packed_objects_have_javascript_order() -> None:
    assert list(msgpack.unpackb(pack({"b": 1, "2": 2, "1": 3}))) == ["1", "2", "b"]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc1", max_size=2), inner, max_size=3),
    max_leaves=6,
)
OPTIONS = st.dictionaries(st.text("abc", min_size=1, max_size=3), PLAIN, max_size=5)


@settings(max_examples=60, deadline=None)
@given(OPTIONS, st.text(max_size=40))
def test_values_packed_again_have_the_same_bytes(known: dict[str, Any], text: str) -> None:
    for _ in range(2):
        assert pack_known(known) == pack(known)
        assert pack_with("token", text, known) == pack({"token": text, **known})


@pytest.mark.parametrize("alike", [(1, 1.5), (1, True), (0, False), (0, -0.0), (1, 1.0), (None, False), ("1", 1)])
def test_options_that_are_equal_in_python_only_are_distinguished(alike: tuple[Any, Any]) -> None:
    for value in (*alike, *reversed(alike)):
        assert pack_known({"attempts": value}) == pack({"attempts": value})
        assert pack_with("token", "t", {"attempts": value}) == pack({"token": "t", "attempts": value})


def test_options_that_cannot_be_cached_are_packed_each_time() -> None:
    for strange in ({"a": MappingProxyType({"b": 1})}, {"a": SpanKind.CONSUMER}, {"a": "x" * 2000}):
        assert pack_known(strange) == pack(strange)
        assert pack_with("token", "t", strange) == pack({"token": "t", **strange})


@pytest.mark.parametrize("refused", [{"a": 2**53 + 1}, {"a": b"b"}, {"a": {1, 2}}])
def test_values_that_cannot_be_packed_are_refused_each_time(refused: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises((InvalidArgument, TypeError)):
            pack_known(refused)


def test_changed_options_are_packed_again() -> None:
    options_of_a_worker: dict[str, Any] = {"limiter": {"max": 1}}
    before = pack_known(options_of_a_worker)
    options_of_a_worker["limiter"]["max"] = 2
    assert pack_known(options_of_a_worker) == pack({"limiter": {"max": 2}}) != before


def test_hash_fields_leave_out_what_is_missing() -> None:
    assert msgpack.unpackb(pack_fields({"failedReason": "", "tm": None, "n": 1})) == ["failedReason", "", "n", 1]


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("é", b"\xc3\xa9"),
        ("\ud800", b"\xef\xbf\xbd"),
        (None, b""),
        (True, b"true"),
        (0.5, b"0.5"),
        (1e21, b"1e+21"),
        (7, b"7"),
        (b"\xff", b"\xff"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (math.inf, b"Infinity"),
        (-math.inf, b"-Infinity"),
        (math.nan, b"NaN"),
    ],
)
def test_arguments_go_out_like_from_ioredis(value: Any, sent: bytes) -> None:
    assert encode_argument(value) == sent


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("HGETALL", b"bull:q:1"), (b"bull:q:1",)),
        (("DEL", b"bull:q:1", b"bull:q:2"), (b"bull:q:1",)),
        (("XREAD", b"BLOCK", b"10", b"STREAMS", b"bull:q:events", b"$"), (b"bull:q:events",)),
        (("INFO",), ()),
    ],
)
def test_a_command_goes_to_the_node_of_its_first_key(command: tuple[Any, ...], key: tuple[bytes, ...]) -> None:
    assert asyncio.run(KeysOfCommands().get_keys(*command)) == key


def test_options_are_stored_under_aliases_in_their_order() -> None:
    given_options = options.normalize({"keepLogs": 1, "backoff": 5, "deduplication": {"id": "x"}, "repeatJobKey": "r"})
    stored = options.encode(given_options)
    assert list(stored) == ["attempts", "kl", "backoff", "de"]
    assert options.decode(stored) == given_options


@given(st.dictionaries(st.sampled_from([*ALIAS_OF_OPTION, "delay", "lifo"]), st.integers(0, 9)))
def test_decoding_undoes_encoding(given_options: dict[str, int]) -> None:
    given_options.pop("debounce", None)
    assert options.decode(options.encode(given_options)) == given_options
    assert not set(options.encode(given_options)) & set(OPTION_OF_ALIAS.values())


@pytest.mark.parametrize("stored", [[], ["lifo"]])
def test_an_array_holds_no_options(stored: list[str]) -> None:
    assert options.decode(stored) == {}


@pytest.mark.parametrize(
    ("given_options", "stored"),
    [
        ({}, {"attempts": 0}),
        ({"attempts": None}, {"attempts": None}),
        ({"backoff": 0}, {"attempts": 0, "backoff": {"type": "fixed", "delay": 0}}),
        ({"backoff": math.inf}, {"attempts": 0, "backoff": math.inf}),
        ({"backoff": None}, {"attempts": 0}),
    ],
)
def test_defaults_of_options(given_options: dict[str, Any], stored: dict[str, Any]) -> None:
    assert options.normalize(given_options) == stored


def test_the_parent_field_lists_the_flags_in_nodes_order() -> None:
    field = options.parent_field(
        {"parent": {"id": "1", "queue": "b:q"}, "continueParentOnFailure": True, "failParentOnFailure": True}
    )
    assert list(field or {}) == ["id", "queueKey", "fpof", "cpof"]


@pytest.mark.parametrize("job_id", ["12", "-5", "a:b", "a:b:c:d"])
def test_bad_ids(job_id: str) -> None:
    with pytest.raises(InvalidArgument, match="Custom Id cannot"):
        options.validate("n", {"jobId": job_id}, "{}")


@pytest.mark.parametrize("job_id", ["", "012", "1.0", "+5", "a:b:c", None])
def test_good_ids(job_id: str | None) -> None:
    options.validate("n", {"jobId": job_id}, "{}")


def delay_of(setting: Any, attempt: int, chance: float = 0.5, **more: Any) -> float | None:
    pending = attempts.delay_before_retry(
        options.normalize_backoff(setting), attempt, RuntimeError(), None, chance=lambda: chance, **more
    )
    return asyncio.run(pending)


def test_backoff_delays() -> None:
    assert delay_of(None, 1) == 0
    assert delay_of(100, 5) == 100
    assert delay_of({"type": "fixed", "delay": 100, "jitter": 0.5}, 1, 0.999) == 99
    assert delay_of({"type": "fixed", "delay": 100, "jitter": 1}, 1, 0.0) == 0
    assert [delay_of({"type": "exponential", "delay": 100}, attempt) for attempt in (1, 2, 3, 10)] == [
        100,
        200,
        400,
        51200,
    ]
    assert delay_of({"type": "exponential", "delay": 2.5}, 1) == 3
    assert delay_of({"type": "exponential", "delay": 100, "jitter": 0.2}, 2, 0.5) == 180


@given(st.integers(1, 100_000), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_in_its_band(delay: int, jitter: float, chance: float) -> None:
    spread = attempts.spread(delay, jitter, lambda: chance)
    assert math.floor(delay * (1 - jitter)) <= spread <= delay


def test_custom_backoff() -> None:
    async def strategy(attempt: int, kind: str | None, _error: BaseException, _job: Any) -> float:
        return attempt * 10 if kind == "mine" else attempts.FAIL_NOW

    assert delay_of({"type": "mine"}, 3, strategy=strategy) == 30
    assert delay_of({"type": "other"}, 3, strategy=strategy) == attempts.FAIL_NOW
    with pytest.raises(BullMQError, match=r"Unknown backoff strategy mine\."):
        delay_of({"type": "mine"}, 1)


@pytest.mark.parametrize(
    ("job", "worker", "kept"),
    [
        ({}, {}, {"count": -1}),
        ({}, {"removeOnComplete": {"age": 5}}, {"age": 5}),
        ({"removeOnComplete": False}, {"removeOnComplete": {"age": 5}}, {"count": -1}),
        ({"removeOnComplete": True}, {}, {"count": 0}),
        ({"removeOnComplete": 3}, {}, {"count": 3}),
        ({"removeOnComplete": {"count": 1, "age": 2}}, {}, {"count": 1, "age": 2}),
    ],
)
def test_keep_rules(job: dict[str, Any], worker: dict[str, Any], kept: dict[str, Any]) -> None:
    assert keep_jobs(job, worker, "removeOnComplete") == kept


def test_replies_of_fetching_scripts() -> None:
    assert read_fetched([0, 0, 120, 0]) == FetchReply(limit_ms=120)
    assert read_fetched([0, 0, 0, 1700]) == FetchReply(next_delayed_ms=1700)
    assert read_fetched([[b"name", b"a"], b"7", 0, 0]) == FetchReply({"name": "a"}, "7")
    assert read_fetched([]) == FetchReply()


def test_a_hash_that_lost_its_fields_still_reads() -> None:
    record = JobRecord.from_hash({"processedOn": "5", "ats": "1"}, "9")
    assert (record.name, record.data, record.timestamp, record.attemptsStarted) == ("", {}, None, 1)


def test_foreign_values_in_a_hash_are_borne() -> None:
    record = JobRecord.from_hash({"name": "n", "returnvalue": "not json", "stacktrace": "{}", "delay": "1e+14"}, "9")
    assert (record.returnvalue, record.stacktrace, record.delay) == (None, [], 1)
    with pytest.raises(ValueError, match="Expecting"):
        JobRecord.from_hash({"name": "n", "data": "not json"}, "9")


def test_values_are_read_once_and_stay_as_they_are_set() -> None:
    fields = {"name": "n", "delay": "5", "ats": "2", "failedReason": "no"}
    record = JobRecord.from_hash(fields, "9")
    record.failedReason = None
    assert (record.delay, record.attemptsStarted, record.failedReason) == (5, 2, None)
    fields["delay"] = "6"
    assert record.delay == 5
    assert record == dataclasses.replace(record)
    assert record != JobRecord.from_hash(fields, "9")
    assert set(record.toJSON()) == {value.name for value in dataclasses.fields(JobRecord)}
    with pytest.raises(AttributeError, match="'JobRecord' object has no attribute 'attempsMade'"):
        record.attempsMade  # type: ignore[attr-defined]  # noqa: B018


def test_keys() -> None:
    keys = QueueKeys("{b}", "q")
    assert keys.base == "{b}:q:"
    assert keys.of_job("repeat:s:1", "lock") == "{b}:q:repeat:s:1:lock"
    assert keys.deduplication("x") == "{b}:q:de:x"


def test_scores() -> None:
    assert states.due_time(states.delayed_score(1_700_000_000_000) + 17) == 1_700_000_000_000
    assert states.priority_of(7 * 2**32 + 5) == 7


def test_addresses() -> None:
    url = Address.of("rediss://me:p%40ss@host:7000/3")
    assert (url.nodes, url.db, url.username, url.password, url.tls) == ((("host", 7000),), 3, "me", "p@ss", True)
    assert Address.of({"nodes": ["[::1]:7001", "h:2"], "mode": "cluster"}).nodes == (("::1", 7001), ("h", 2))
    assert "p@ss" not in repr(url)


def test_stacks_start_with_the_message() -> None:
    try:
        raise InvalidArgument("boom")  # noqa: TRY301 - a traceback is wanted
    except InvalidArgument as error:
        first, second = stack_of(error).split("\n")[:2]
    assert first == "InvalidArgument: boom"
    assert second.startswith("    at test_stacks_start_with_the_message (")


def test_flat_replies() -> None:
    assert flat_mapping([b"a", b"1", b"b", b"\xff"]) == {"a": "1", "b": "\ufffd"}


def test_listeners() -> None:
    heard: list[Any] = []
    emitter = EventEmitter[str]()

    def failing(*_: Any) -> None:
        raise RuntimeError("listener")

    emitter.on("x", failing)
    emitter.on("x", heard.append)
    emitter.on("error", lambda error: heard.append(str(error)))
    emitter.emit("x", 1)
    emitter.off("x", failing)
    emitter.emit("x", 2)
    assert heard == ["listener", 1, 2]
