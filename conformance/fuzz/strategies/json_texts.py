"""JSON texts for data, progress and return values: all of JSON, and what is known to break clients."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

PLAIN = ("{}", '{"n":1}', "null", '"text"', "[]", "0", "true")
"""What most jobs carry; the simplest first, because shrinking goes that way."""

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

INEXACT = (
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
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abc:_{}é\U0001f389", max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)


def written(value: Any) -> str:
    """A value as `JSON.stringify` writes it; lone surrogates as lower-case escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # pairs become one character
    return "".join(f"\\u{ord(sign):04x}" if "\ud800" <= sign <= "\udfff" else sign for sign in text)


_ANY_JSON = _VALUES.map(written)
_NORMAL = st.sampled_from(PLAIN * 6 + TROUBLEMAKERS) | _ANY_JSON
_EXACT = st.sampled_from(PLAIN * 6 + TROUBLEMAKERS + INEXACT) | _ANY_JSON


def json_texts(*, exact: bool) -> st.SearchStrategy[str]:
    """JSON texts. `exact`: also those that only survive where a text is passed through byte for byte."""
    return _EXACT if exact else _NORMAL
