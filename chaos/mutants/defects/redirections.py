"""Defects of clients of a cluster: what they do about MOVED and ASK."""

from __future__ import annotations

from typing import Any

from redis.asyncio.cluster import ClusterNode, NodesManager

from chaos.mutants.catalogue import chaos_mutant
from conformance.mutants.damage import Damage, Function


@chaos_mutant("moved.ignored", kills="recovery", under="cluster.migrate-slot")
def moved_ignored(damage: Damage) -> None:
    """A client keeps its first table of slots: after MOVED it sends the next command to the old node as well."""

    async def forget(_nodes: NodesManager, _error: Exception) -> None:
        """The slot has moved, and the client does not learn it."""

    def broken(read_table: Function) -> Function:
        async def read_once(nodes: NodesManager, *arguments: Any, **options: Any) -> None:
            if not nodes.slots_cache:
                await read_table(nodes, *arguments, **options)
            nodes.default_node = nodes.get_node_from_slot(0)

        return read_once

    damage.around(NodesManager, "initialize", broken)
    damage.replace(NodesManager, "move_slot", forget)


@chaos_mutant("ask.without-asking", kills="connections", under="cluster.migrate-slot")
def ask_without_asking(damage: Damage) -> None:
    """A client follows ASK without ASKING: the other node answers MOVED, and so the command goes to and fro."""

    def broken(execute: Function) -> Function:
        async def execute_without(node: ClusterNode, *words: Any, **options: Any) -> Any:
            return None if words[:1] == ("ASKING",) else await execute(node, *words, **options)

        return execute_without

    damage.around(ClusterNode, "execute_command", broken)
