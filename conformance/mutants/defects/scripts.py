"""Scripts that are called in a wrong way, and keys that a cluster spreads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.scripts import add as scripts_add
from conformance.reference_impl.scripts import runner
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner


def _with_keys(keys: Sequence[str], call: EvalCommand) -> EvalCommand:
    return EvalCommand(call.name, keys, call.arguments)


@mutant("script.wrong-key", kills=("script.keys",))
def wrong_key(damage: Damage) -> None:
    """Renewing a lock takes the id out of another set than `stalled`."""
    damage.calls("extendLock", lambda call: _with_keys([call.keys[0], call.keys[1][:-1]], call))


@mutant("script.base-without-colon", kills=("script.keys",))
def base_without_colon(damage: Damage) -> None:
    """The base from which `drain` builds the keys of jobs lacks its colon, so that the hashes stay."""
    damage.argument("drain", 0, lambda given: str(given)[:-1])


@mutant("script.boolean-of-another-language", kills=("script.arguments",))
def boolean_of_another_language(damage: Damage) -> None:
    """A flag goes out as `False`, which the script takes for no."""
    damage.argument("drain", 1, lambda given: "False" if str(given) == "0" else given)


@mutant("script.fraction-of-a-millisecond", kills=("script.arguments",))
def fraction_of_a_millisecond(damage: Damage) -> None:
    """The client's time has a fraction, as the clocks of many languages do."""
    damage.argument("retryJob", 1, lambda given: f"{given}.25")


@mutant("script.by-hand", kills=("script.atomic",))
def by_hand(damage: Damage) -> None:
    """New data is written by a plain command, after a check whether the job exists."""

    def broken(run: Function) -> Function:
        async def run_script(runner: ScriptRunner, call: EvalCommand) -> Any:
            if call.name != "updateData":
                return await run(runner, call)
            if not await runner.connection.command("EXISTS", call.keys[0]):
                return -1
            await runner.connection.command("HSET", call.keys[0], "data", call.arguments[0])
            return 0

        return run_script

    damage.around(ScriptRunner, "run", broken)


@mutant("script.looks-at-all-keys", kills=("script.harmless",))
def lists_all_keys(damage: Damage) -> None:
    """On every connection the client first lists all keys of Redis."""
    looked: set[Connection] = set()

    def broken(ready: Function) -> Function:
        async def look_and_connect(connection: Connection) -> None:
            await ready(connection)
            if connection not in looked:  # the command itself waits for the connection to be ready
                looked.add(connection)
                await connection.command("KEYS", "bull:*")
                damage.witness.note()

        return look_and_connect

    damage.around(Connection, "ready", broken)


@mutant("script.always-by-text", kills=("script.by-hash",))
def always_by_text(damage: Damage) -> None:
    """The text of a script is sent with every call."""
    damage.replace(ScriptRunner, "_by_digest", ScriptRunner._by_text)  # noqa: SLF001  (its inside is what is broken)


@mutant("script.never-again", kills=("script.loading",))
def never_again(damage: Damage) -> None:
    """A script that Redis has forgotten is an error."""

    async def load_once(runner: ScriptRunner, call: EvalCommand) -> Any:
        key = (id(runner), call.name)
        if key not in loaded:
            await runner._load_missing([call])  # noqa: SLF001  (its inside is what is broken)
            loaded.add(key)
        return await runner.connection.command(*runner._by_digest(call))  # noqa: SLF001

    loaded: set[tuple[int, str]] = set()
    damage.replace(ScriptRunner, "run", load_once)


@mutant("script.refusal-unheard", kills=("script.refused-call",))
def refusal_unheard(damage: Damage) -> None:
    """A negative number from a script counts as success."""
    for module in (runner, scripts_add):
        damage.replace(module, "is_refusal", lambda _reply: False)


@mutant("cluster.untagged-key", kills=("cluster.tagged-works",), needs="cluster")
def untagged_key(damage: Damage) -> None:
    """One key of one script loses its braces."""

    def edit(call: EvalCommand) -> EvalCommand:
        *others, marker = call.keys
        return EvalCommand(call.name, [*others, marker.replace("{", "").replace("}", "")], call.arguments)

    damage.calls("promote", edit)


@mutant("cluster.braces-of-its-own", kills=("cluster.untagged-spreads",), needs="cluster")
def braces_of_its_own(damage: Damage) -> None:
    """The client adds braces that the user did not write, so that no other client finds the queue."""

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
