"""Values as JavaScript has them, against Node itself and known cases: JSON texts, numbers, dates and their limits."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.reference_impl.connection.resp import encode_argument
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.js_values import (
    LARGEST_EXACT,
    RawJson,
    iso_text,
    js_number,
    milliseconds,
    object_keys,
    parse,
    parse_int,
    stringify,
    to_number,
    truthy,
)
from conformance.reference_impl.packing import pack
from conformance.reference_impl.recurrence import is_over, next_count, refuse_past_end
from conformance.upstream.node import find_node

ECHO = """
const lines = require('readline').createInterface({ input: process.stdin });
lines.on('line', line => console.log(JSON.stringify(JSON.stringify(JSON.parse(line)))));
"""

KNOWN: list[tuple[Any, str]] = [
    (1.0, "1"),
    (-0.0, "0"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (1.5e300, "1.5e+300"),
    (1e-6, "0.000001"),
    (1e-7, "1e-7"),
    (0.1, "0.1"),
    (123.456, "123.456"),
    (2.0**63, "9223372036854776000"),
    (2**63, "9223372036854775808"),
    (9007199254740993, "9007199254740993"),
    (-(10**400), "-1" + "0" * 400),
    (5e-324, "5e-324"),
    (True, "true"),
    (None, "null"),
    ([], "[]"),
    ({}, "{}"),
    ((1, None), "[1,null]"),
    (
        {"b": 1, "10": 2, "9": 3, "01": 4, "-1": 5, "4294967295": 6, "4294967294": 7},
        '{"9":3,"10":2,"4294967294":7,"b":1,"01":4,"-1":5,"4294967295":6}',
    ),
    ({2: "a", None: "b", True: "c"}, '{"2":"a","null":"b","true":"c"}'),
    ("/\x7f\u2028é\U0001f600", '"/\x7f\u2028é\U0001f600"'),
    ('\x00\b\t\n\x0b\f\r\x1f"\\', '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\"\\\\"'),
    ("\ud800x\udfff", '"\\ud800x\\udfff"'),
    ("\ud83d\ude00", '"\U0001f600"'),
    ([RawJson("1.0")], "[1.0]"),
]


@pytest.mark.parametrize(("value", "text"), KNOWN)
def test_known_values(value: Any, text: str) -> None:
    assert stringify(value) == text


def test_python_json_is_not_enough() -> None:
    """The cases above would catch a client that takes the easy way."""
    differing = [text for value, text in KNOWN if isinstance(value, float) and json.dumps(value) != text]
    assert len(differing) > 5


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {"deep": [object()]}])
def test_values_without_a_form_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="Do not know how to serialize"):
        stringify(value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "", "{'a':1}", "[1,]", '"\x01"', "\ufeff1", "01"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|Invalid|Extra|Unexpected|Illegal"):
        parse(text)


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 4200, "1e400", "-1.5e400", "12345678901234567890"])
def test_numbers_beyond_doubles_are_written_back_as_they_were_read(text: str) -> None:
    assert stringify(parse(f'[{text},{{"a":{text}}}]')) == f'[{text},{{"a":{text}}}]'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_outside_of_json_are_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"Out of range float values are not JSON compliant: {value!r}"):
        stringify({"a": [value]})


def test_integers_too_long_for_a_text_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="an integer of 16610 bits is too long"):
        stringify({"a": 10**5000})


def _containing_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def test_values_nested_too_deeply_are_refused() -> None:
    for write in (stringify, pack):
        with pytest.raises(InvalidArgument, match="nested too deeply, or contain"):
            write(_containing_itself())
    with pytest.raises(ValueError, match="the JSON is nested too deeply to be read"):
        parse("[" * 200_000)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**64, 10**5000], ids=hex)
def test_integers_that_redis_would_change_are_refused(value: int) -> None:
    for write in (pack, encode_argument):
        with pytest.raises(InvalidArgument, match=r"the integer \S+ is beyond 2\*\*53"):
            write(value)


@pytest.mark.parametrize("value", [2**53, -(2**53), 2.0**64, 1e300])
def test_numbers_that_a_double_holds_are_accepted(value: float) -> None:
    assert msgpack.unpackb(pack(value)) == value
    assert float(encode_argument(value)) == value


@pytest.mark.parametrize(
    ("value", "number"), [(None, 0), (True, 1), (1.5, 1.5), (" 12 ", 12), ("", 0), ("x", None), ({}, None)]
)
def test_to_number(value: Any, number: float | None) -> None:
    found = to_number(value)
    assert found == number if number is not None else math.isnan(found)


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), (" -5x", -5), ("1e3", 1), ("0.9", 0), ("", None), ("x", None), (None, None), ("9" * 5000, None)],
)
def test_parse_int(text: str | None, number: int | None) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(("value", "expected"), [([], True), ({}, True), ("", False), (0, False), (math.nan, False)])
def test_truthy(value: Any, expected: bool) -> None:
    assert truthy(value) is expected


def test_object_keys_keep_their_order() -> None:
    assert object_keys(["z", "a"]) == ["z", "a"]


@pytest.fixture(scope="module")
def node_echo() -> Iterator[Callable[[str], str]]:
    """What `JSON.stringify(JSON.parse(text))` is in Node."""
    command = [str(find_node(None).path), "-e", ECHO]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def echo(text: str) -> str:
        stdin.write(f"{text}\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        assert isinstance(answer, str)
        return answer

    yield echo
    stdin.close()
    process.wait()


characters = st.text(st.characters(exclude_categories=()), max_size=8)
integers = st.integers(-LARGEST_EXACT, LARGEST_EXACT)
scalars = st.one_of(st.none(), st.booleans(), integers, st.floats(allow_nan=False, allow_infinity=False), characters)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(characters | st.integers(0, 2**32).map(str), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=600)
@given(value=values)
def test_same_text_as_node(node_echo: Callable[[str], str], value: Any) -> None:
    ours = stringify(value)
    assert node_echo(ours) == ours


@pytest.mark.slow
@settings(max_examples=600)
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_like_node(node_echo: Callable[[str], str], number: float) -> None:
    assert node_echo(repr(number)) == js_number(number)
    assert float(js_number(number)) == number


@pytest.mark.slow
@settings(max_examples=300)
@given(value=values)
def test_reading_and_writing_again_like_node(node_echo: Callable[[str], str], value: Any) -> None:
    text = json.dumps(value)
    assert stringify(parse(text)) == node_echo(text)


@given(number=st.integers())
def test_integers_of_any_size_keep_their_digits(number: int) -> None:
    assert stringify(parse(str(number))) == str(number)


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    "given",
    [
        *(NOW, float(NOW), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "2023-11-14T22:13:20.000Z"),
        *("2023-11-14T23:13:20+01:00", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ],
    ids=str,
)
def test_one_instant_in_many_forms(given: Any) -> None:
    assert milliseconds(given) == NOW


def test_a_date_alone_is_utc() -> None:
    assert milliseconds("2023-11-14") == NOW - NOW % 86_400_000
    assert milliseconds("2023") == 1_672_531_200_000
    assert milliseconds("2023-02") == 1_675_209_600_000


@pytest.mark.parametrize("given", ["soon", "", None, [], "2023-13-01"], ids=repr)
def test_an_invalid_date_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="Invalid date"):
        milliseconds(given)


def test_iso_text_is_that_of_javascript() -> None:
    assert iso_text(NOW + 7) == "2023-11-14T22:13:20.007Z"
    assert iso_text(-1) == "1969-12-31T23:59:59.999Z"


def test_iterations_are_counted_up_to_the_limit() -> None:
    assert next_count({}) == 1
    assert next_count({"count": 2, "limit": 3}) == 3
    assert next_count({"count": 3, "limit": 3}) is None
    assert next_count({"limit": 0}) is None


def test_an_end_date_ends_after_its_instant() -> None:
    assert not is_over({"endDate": NOW}, NOW)
    assert is_over({"endDate": NOW}, NOW + 1)
    with pytest.raises(InvalidArgument, match="End date must be greater than current timestamp"):
        refuse_past_end({"endDate": NOW}, NOW + 1)
