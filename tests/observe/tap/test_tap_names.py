"""Scripts that are not the official ones to the byte: known by their text, or by the keys that they get."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest

from conformance.mutants.damage import filtered
from conformance.observe.tap.commands import ScriptNames, script_with_keys
from conformance.protocol.scripts import SCRIPT_SIGNATURES
from conformance.reference_impl.scripts.runner import official_scripts


@pytest.fixture(scope="module")
def texts() -> Mapping[str, str]:
    return {name: script.text for name, script in official_scripts().items()}


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _eval(text: str) -> tuple[bytes, ...]:
    return (b"EVAL", text.encode(), b"0")


def _keys(script: str) -> list[bytes]:
    """KEYS of an official call for job 7 of a queue."""
    names = [names.split("|")[0] for names in SCRIPT_SIGNATURES[script].keys]
    return [f"b:q:{'' if name == '<base>' else name.replace('<job>', '7')}".encode() for name in names]


@pytest.mark.parametrize("name", SCRIPT_SIGNATURES)
def test_a_changed_script_is_known_by_its_text(name: str, texts: Mapping[str, str]) -> None:
    """`getState` and the like differ in one line only; what is meant by one may be taken for the other."""
    names = ScriptNames({}, texts)
    changed = filtered(official_scripts()[name], "return nil").text + "\n-- and a remark"
    names.learn("EVAL", _eval(changed), _sha1(changed))
    assert names.of(_sha1(changed)) == name


def test_a_text_that_is_loaded_is_known_too(texts: Mapping[str, str]) -> None:
    names = ScriptNames({}, texts)
    names.learn("SCRIPT", (b"SCRIPT", b"load", texts["pause"].encode()), None)
    assert names.of(_sha1(texts["pause"])) == "pause"


@pytest.mark.parametrize("text", ["return 1", "", "local a = 1\nreturn a\nend\n--[["])
def test_a_script_unlike_any_official_one_has_no_name(text: str, texts: Mapping[str, str]) -> None:
    names = ScriptNames({}, texts)
    names.learn("EVAL", _eval(text), _sha1(text))
    assert names.of(_sha1(text)) is None
    assert names.of(None) is None


@pytest.mark.parametrize("name", SCRIPT_SIGNATURES)
def test_the_keys_never_give_a_wrong_name(name: str) -> None:
    """Scripts with the same keys cannot be distinguished."""
    assert script_with_keys(_keys(name)) in {name, None}


@pytest.mark.parametrize(
    "name",
    ["addStandardJob", "moveToActive", "moveToFinished", "moveStalledJobsToWait", "retryJob", "extendLocks", "pause"],
)
def test_the_keys_give_the_name_if_the_text_never_passed(name: str, texts: Mapping[str, str]) -> None:
    names = ScriptNames({}, texts)
    keys = _keys(name)
    names.learn("EVALSHA", (b"EVALSHA", b"ab" * 20, str(len(keys)).encode(), *keys, b"argument"), "ab" * 20)
    assert names.of("ab" * 20) == name


def test_a_text_that_comes_later_counts_more_than_the_keys(texts: Mapping[str, str]) -> None:
    names = ScriptNames({}, texts)
    text = texts["pause"] + "\n-- changed"
    keys = _keys("moveToActive")
    names.learn("EVALSHA", (b"EVALSHA", _sha1(text).encode(), str(len(keys)).encode(), *keys), _sha1(text))
    assert names.of(_sha1(text)) == "moveToActive"
    names.learn("EVAL", _eval(text), _sha1(text))
    assert names.of(_sha1(text)) == "pause"


def test_without_texts_only_exact_scripts_are_known() -> None:
    names = ScriptNames({"ab" * 20: "pause"}, {})
    keys = _keys("moveToActive")
    names.learn("EVALSHA", (b"EVALSHA", b"cd" * 20, str(len(keys)).encode(), *keys), "cd" * 20)
    assert (names.of("ab" * 20), names.of("cd" * 20)) == ("pause", None)
