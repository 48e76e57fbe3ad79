"""How scripts are called is read from their texts, and agrees with the kit's own table of the pinned version."""

from __future__ import annotations

import pytest

from conformance.upstream.manifest import RawScript
from conformance.versions.signatures import call_of, changed_calls, other_texts


def script(text: str, keys: int = 1) -> RawScript:
    return RawScript(keys=keys, text=text)


@pytest.mark.parametrize(
    ("text", "args", "more"),
    [
        ("return 1", 0, False),
        ("return ARGV[1] + ARGV[3]", 3, False),
        ("local opts = cmsgpack.unpack(ARGV[2])", 2, False),
        ("for i = 1, #ARGV do end", 0, True),
        ("for i = 2, n do x(ARGV[i]) end return ARGV[1]", 1, True),
        ("return redis.call('DEL', unpack(ARGV))", 0, True),
    ],
)
def test_arguments_are_counted_in_the_text(text: str, args: int, more: bool) -> None:
    call = call_of("unknown", script(text), "6.7.0")
    assert (call.args, call.more, call.key_names) == (args, more, [])


def test_keys_are_named_where_the_table_agrees_with_the_script() -> None:
    assert call_of("drain", script("", keys=5), "5.62.0").key_names == [
        "wait",
        "paused",
        "delayed",
        "prioritized",
        "repeat",
    ]
    assert call_of("drain", script("", keys=6), "5.62.0").key_names == []
    assert call_of("drain", script("", keys=5), "5.40.0").key_names == []


def test_changed_new_and_gone_scripts() -> None:
    before = {"gone": script(""), "same": script("a"), "text": script("a"), "keys": script("", 2), "args": script("")}
    after = {
        "new": script(""),
        "same": script("a"),
        "text": script("b"),
        "keys": script("", 3),
        "args": script("ARGV[1]"),
    }
    found = dict(changed_calls(before, "5.62.0", after, "6.7.0"))
    assert [change.name for change in found.values()] == ["args", "gone", "keys", "new"]
    for sign in found:
        assert sign.holds(after, "6.7.0")
        assert not sign.holds(before, "5.62.0")
    assert other_texts(before, after, [sign.name for sign in found]) == ["text"]
