"""The names that BullMQ's types declare: each is used by a scenario, or left out for a reason."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from conformance.problems import EnvironmentProblem
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.upstream.declarations import Declarations, declared_in, read_declarations
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_bullmq
from conformance.versions.declared_names import left_out, unused_of, without_row

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
    assert without_row(declared(version)) == [], (
        "write a scenario that uses it, or a line of conformance/scenarios/unused.toml"
    )


def test_nothing_is_left_out_that_is_used() -> None:
    unused = {name for version in SUPPORTED_ORACLES for name in unused_of(declared(version))}
    assert [like for like in left_out() if not any(fnmatchcase(name, like) for name in unused)] == []


def test_a_name_that_no_scenario_uses_is_noticed() -> None:
    new = Declarations(options={"JobsOptions.brandNew": "boolean"}, methods={"Queue.brandNew", "Queue.add"})
    assert list(unused_of(new)) == ["JobsOptions.brandNew", "Queue.brandNew"]
