"""The names that BullMQ's types declare: each is used by a scenario, or left out for a reason."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.upstream.declarations import Declarations, declared_in, read_declarations
from conformance.upstream.node import find_node
from conformance.upstream.package import HARNESS, ensure_bullmq

SCENARIOS = Path(str(files("conformance.scenarios")))
LEFT_OUT = tomllib.loads((SCENARIOS / "unused.toml").read_text("utf-8"))
PATTERNS = [pattern for part in LEFT_OUT.values() for pattern in part["names"]]

SAMPLE = """
import { Other } from './other';
/** name: not this one */
export interface FooOptions<T = any> extends Other {
    readonly plain?: number; // other: nor this
    nested?: {
        inner: string;
        deeper?: { deepest: boolean };
    };
    call: (parameter: { hidden: string }) => void;
    method?(parameter: string): Promise<{ inline: number }>;
    texts: 'a:b' | "c;d";
}
export type KeepJobs = { count: number; } | { age: number; limit?: number; };
export type Alias = Omit<FooOptions, 'plain'>;
export declare class Queue<T = any, R = { of: string }> extends Base<T> {
    private secret;
    protected half(opts: string): void;
    constructor(name: string, opts?: { connection: string });
    get shown(): string;
    static make(): Queue;
    remove(id: string, { children }?: {
        children?: boolean;
    }): Promise<number>;
}
"""


def test_names_are_read_at_every_level_of_a_declaration() -> None:
    found = {name: {member.path: member.type for member in members} for _, name, members in declared_in(SAMPLE)}
    assert found["FooOptions"].keys() == {
        *("plain", "nested", "nested.inner", "nested.deeper", "nested.deeper.deepest", "texts"),
        *("call", "call.hidden", "method", "method.inline"),
    }
    assert found["FooOptions"]["plain"] == "number"
    assert found["FooOptions"]["texts"] == "'a:b' | \"c;d\""
    assert found["KeepJobs"].keys() == {"count", "age", "limit"}
    assert found["Alias"] == {}
    assert found["Queue"].keys() == {"shown", "make", "remove", "remove.children"}


def test_a_folder_without_declarations(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no TypeScript declarations"):
        read_declarations(tmp_path)


@cache
def declared(version: str) -> Declarations:
    node = find_node(None)
    return read_declarations(ensure_bullmq(node, version, announce=print).root)


@pytest.mark.parametrize("version", SUPPORTED_ORACLES)
def test_every_declared_name_is_used_or_left_out_for_a_reason(version: str) -> None:
    unused = [name for name in unused_of(declared(version)) if not any(fnmatchcase(name, like) for like in PATTERNS)]
    assert unused == [], "write a scenario that uses it, or a line of conformance/scenarios/unused.toml"


def test_nothing_is_left_out_that_is_used() -> None:
    unused = {name for version in SUPPORTED_ORACLES for name in unused_of(declared(version))}
    assert [like for like in PATTERNS if not any(fnmatchcase(name, like) for name in unused)] == []


def test_a_name_that_no_scenario_uses_is_noticed() -> None:
    new = Declarations(options={"JobsOptions.brandNew": "boolean"}, methods={"Queue.brandNew", "Queue.add"})
    assert list(unused_of(new)) == ["JobsOptions.brandNew", "Queue.brandNew"]


def unused_of(declarations: Declarations) -> Iterator[str]:
    """Options and events that no scenario names, and methods that the Node driver does not call either."""
    for name in sorted([*declarations.options, *declarations.events]):
        if name.rpartition(".")[2] not in words_of_scenarios():
            yield name
    for name in sorted(declarations.methods):
        if name.rpartition(".")[2] not in words_of_scenarios() | called_by_the_node_driver():
            yield name


@cache
def words_of_scenarios() -> frozenset[str]:
    """Keywords, attributes and short texts of the scenarios, as they are and in camelCase, and the words of replays."""
    replays = [path.read_text("utf-8") for path in SCENARIOS.rglob("*.jsonl")]
    found = {word for text in replays for word in re.findall(r"\w+", text)}
    for path in SCENARIOS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if len(text) < 60:
                    found.update(re.findall(r"\w+", text))
                case ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                    found.add(name)
    return frozenset(found | {re.sub(r"_(\w)", lambda match: match[1].upper(), word) for word in found})


@cache
def called_by_the_node_driver() -> frozenset[str]:
    texts = [path.read_text("utf-8") for path in HARNESS.rglob("*.mjs")]
    return frozenset(name for text in texts for name in re.findall(r"\.(\w+)\(", text))
