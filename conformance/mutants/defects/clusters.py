"""Clients that do not know how a cluster spreads keys. They are let loose on a cluster."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.scripts.runner import ScriptCall, ScriptRunner


@mutant("cluster.untagged-key", kills=("cluster.tagged-works",), needs="cluster")
def untagged_key(damage: Damage) -> None:
    """One key of one script loses its braces."""

    def edit(call: ScriptCall) -> ScriptCall:
        *others, marker = call.keys
        return ScriptCall(call.name, [*others, marker.replace("{", "").replace("}", "")], call.arguments)

    damage.calls("promote", edit)


@mutant("cluster.braces-of-its-own", kills=("cluster.untagged-spreads",), needs="cluster")
def braces_of_its_own(damage: Damage) -> None:
    """Where the user has written no braces the client adds them, and nobody else finds the queue."""

    def base(keys: QueueKeys) -> str:
        given = f"{keys.prefix}:{keys.queue}"
        return f"{given}:" if "{" in given else f"{{{given}}}:"

    damage.replace(QueueKeys, "base", property(base))


@mutant("cluster.flow-in-pieces", kills=("cluster.flow-in-one-slot",), needs="cluster")
def flow_in_pieces(damage: Damage) -> None:
    """The jobs of a flow are added one after the other."""

    def broken(_healthy: Function) -> Function:
        async def run_transaction(runner: ScriptRunner, calls: Any) -> list[Any]:
            return [await runner.run(call) for call in calls]

        return run_transaction

    damage.around(ScriptRunner, "run_transaction", broken)
