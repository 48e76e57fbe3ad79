"""Flows that are stored wrongly, and parents that wait in vain, not at all, or do not notice the end of a child."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import flow_producer
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.flow_producer import FlowMapping, FlowPlan, FlowProducer, JobNode
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner

_STORED = 'command[1] == "HMSET" and at(command, "opts")'
"""Lua condition: the command that stores a new job."""
_OTHERS_PENDING = 'command[1] == "SCARD" and command[2] ~= KEYS[12] .. ":dependencies"'
"""Lua condition: moveToFinished asks how many children the parent still waits for."""
_CHILD_FAILS = 'command[1] == "SREM" and on(command, "dependencies") and ARGV[3] == "failedReason"'
"""Lua condition: moveToFinished takes a child that has failed from what its parent waits for."""
_FAILS_THROUGH_CHILD = 'string.find(ARGV[4], "^child .* failed$")'
"""Lua condition: the job that moveToFinished ends has the deferred failure that its child gave it."""
_NEVER_RELEASED = 'if command[1] == "ZREM" and on(command, "waiting-children") then return 0 end'


@mutant("flow.parent-runs", kills=("flow.parent.waits",))
def parent_runs(damage: Damage) -> None:
    """A parent waits like any other job, and does not wait for its children."""

    def broken(place: Function) -> Function:
        return lambda plan, pending, spans: place(plan, _without_children(pending), spans)

    damage.around(FlowPlan, "_place", broken)


@mutant("flow.parent-score-zero", kills=("flow.parent.waits",))
def parent_score_zero(damage: Damage) -> None:
    """Parents have no score in `waiting-children`."""
    damage.commands("addParentJob", 'if command[1] == "ZADD" then command[3] = 0 end')


@mutant("flow.parent-silent", kills=("flow.parent.waits",))
def parent_silent(damage: Damage) -> None:
    """There is no event `waiting-children`."""
    damage.commands("addParentJob", 'if event(command) == "waiting-children" then return "0-0" end')


@mutant("flow.child-unlinked", kills=("flow.child.linked",))
def child_unlinked(damage: Damage) -> None:
    """A child has no field `parent`."""
    damage.commands("add*Job", f'if {_STORED} then drop(command, "parent") end')


@mutant("flow.child-keyless", kills=("flow.child.linked",), by=("flow-failures/a_failed_child_without_option",))
def child_keyless(damage: Damage) -> None:
    """A child has no field `parentKey`."""
    damage.commands("add*Job", f'if {_STORED} then drop(command, "parentKey") end')


@mutant("flow.child-not-waited-for", kills=("flow.parent.waits", "flow.fail.none"))
def child_not_waited_for(damage: Damage) -> None:
    """A parent does not know its children."""
    damage.commands("add*Job", 'if command[1] == "SADD" and on(command, "dependencies") then return 1 end')


@mutant("flow.defaults-ignored", kills=("flow.defaults",))
def defaults_ignored(damage: Damage) -> None:
    """The jobs of a flow have only options of their own."""

    def broken(merge: Function) -> Function:
        def own_only(plan: FlowPlan, queue: str, own: Mapping[str, Any], parent: Any) -> dict[str, Any]:
            if vars(plan)["_queues_options"]:
                damage.witness.note()
                vars(plan)["_queues_options"] = {}
            merged: dict[str, Any] = merge(plan, queue, own, parent)
            return merged

        return own_only

    damage.around(FlowPlan, "_merged_options", broken)


@mutant("flow.ids-from-time", kills=("flow.ids",))
def ids_from_time(damage: Damage) -> None:
    """Jobs of a flow get uuids that are made of the time."""
    damage.replace(flow_producer, "uuid", SimpleNamespace(uuid4=uuid.uuid1))


@mutant("flow.ids-in-options", kills=("flow.ids",))
def ids_in_options(damage: Damage) -> None:
    """The id that a job of a flow got is stored among its options."""

    def broken(place: Function) -> Function:
        def place_named(plan: FlowPlan, pending: Any, spans: ExitStack) -> Any:
            given = {"jobId": str(uuid.uuid4()), **(pending.flow.get("opts") or {})}
            return place(plan, _with_flow(pending, {**pending.flow, "opts": given}), spans)

        return place_named

    damage.around(FlowPlan, "_place", broken)


@mutant("flow.refused-half-way", kills=("flow.all-or-nothing-validation",))
def refused_half_way(damage: Damage) -> None:
    """A flow that is refused leaves its parent."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            try:
                return await add(producer, flow, opts)
            except InvalidArgument:
                await add(producer, {**flow, "children": []}, opts)
                raise

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.job-by-job", kills=("flow.atomic",))
def job_by_job(damage: Damage) -> None:
    """The jobs of a flow are stored one after the other, the parent first."""

    async def run_one_by_one(runner: ScriptRunner, calls: Sequence[EvalCommand]) -> list[Any]:
        return [await runner.run(call) for call in calls]

    damage.replace(ScriptRunner, "run_transaction", run_one_by_one)


@mutant("flow.bulk-of-one", kills=("flow.bulk",))
def bulk_of_one(damage: Damage) -> None:
    """Of several flows only the first is stored."""

    def broken(add: Function) -> Function:
        async def add_bulk(producer: FlowProducer, flows: Sequence[FlowMapping]) -> list[JobNode]:
            nodes: list[JobNode] = await add(producer, flows[:1])
            return nodes

        return add_bulk

    damage.around(FlowProducer, "addBulk", broken)


@mutant("flow.two-levels", kills=("flow.deep",))
def two_levels(damage: Damage) -> None:
    """Children of children are left out."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            children = [{**child, "children": []} for child in flow.get("children") or ()]
            return await add(producer, {**flow, "children": children}, opts)

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.one-queue", kills=("flow.deep",))
def one_queue(damage: Damage) -> None:
    """A child is put into the queue of its parent."""

    def broken(add: Function) -> Function:
        async def add_flow(producer: FlowProducer, flow: FlowMapping, opts: Mapping[str, Any] | None = None) -> Any:
            children = [{**child, "queueName": flow["queueName"]} for child in flow.get("children") or ()]
            return await add(producer, {**flow, "children": children}, opts)

        return add_flow

    damage.around(FlowProducer, "add", broken)


@mutant("flow.never-released", kills=("flow.release", "flow.deep"))
def never_released(damage: Damage) -> None:
    """A parent waits on when its last child is done."""
    damage.commands("moveToFinished", f"if {_OTHERS_PENDING} then return 1 end")


@mutant("flow.released-early", kills=("flow.release",))
def released_early(damage: Damage) -> None:
    """A parent is released by the first child that is done."""
    damage.commands("moveToFinished", f"if {_OTHERS_PENDING} then return 0 end")


@mutant("flow.released-to-wait", kills=("flow.release",))
def released_to_wait(damage: Damage) -> None:
    """A released parent has neither priority nor delay."""
    damage.commands(
        "moveToFinished", 'if command[1] == "HMGET" and command[3] == "priority" then return {false, false} end'
    )


@mutant("flow.released-silently", kills=("event.waiting",), by=("flow/the_last_child_releases_its_parent",))
def released_silently(damage: Damage) -> None:
    """The release of a parent leaves no event."""
    damage.commands("moveToFinished", 'if event(command) == "waiting" and at(command, "prev") then return "0-0" end')


@mutant("flow.released-while-paused", kills=("flow.release",))
def released_while_paused(damage: Damage) -> None:
    """The parent of a paused queue enters `wait`."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HMGET" and on(command, "meta") then '
        "local found = send(unpack(command)) found[1] = false return found end",
    )


@mutant("flow.values-lost", kills=("flow.children-values",))
def values_lost(damage: Damage) -> None:
    """Results of children are not stored for their parent."""
    damage.commands("moveToFinished", 'if command[1] == "HSET" and on(command, "processed") then return 1 end')


@mutant("flow.values-by-id", kills=("flow.children-values",))
def values_by_id(damage: Damage) -> None:
    """Results of children are stored under their id instead of their key."""
    damage.commands(
        "moveToFinished", 'if command[1] == "HSET" and on(command, "processed") then command[3] = ARGV[1] end'
    )


@mutant("flow.read-to-the-bottom", kills=("flow.get",))
def read_to_the_bottom(damage: Damage) -> None:
    """A flow is read without regard to the depth asked for."""
    _edit_get(damage, lambda asked: {**asked, "depth": 10})


@mutant("flow.read-pending-only", kills=("flow.get",))
def read_pending_only(damage: Damage) -> None:
    """A flow is read without its finished children."""

    def broken(read: Function) -> Function:
        async def dependencies(job: Job, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
            found: dict[str, Any] = await read(job, asked)
            return {**found, "processed": {}}

        return dependencies

    damage.around(Job, "getDependencies", broken)


def _edit_get(damage: Damage, edit: Function) -> None:
    def broken(read: Function) -> Function:
        async def get_flow(producer: FlowProducer, asked: Mapping[str, Any]) -> JobNode | None:
            found: JobNode | None = await read(producer, edit(asked))
            return found

        return get_flow

    damage.around(FlowProducer, "getFlow", broken)


def _without_children(pending: Any) -> Any:
    return _with_flow(pending, {**pending.flow, "children": []})


def _with_flow(pending: Any, flow: FlowMapping) -> Any:
    """The same place in the tree for another job."""
    return replace(pending, flow=flow)


@mutant("late.parent-runs-last", kills=("flow.release",))
def parent_runs_last(damage: Damage) -> None:
    """A released parent goes behind those that wait."""
    damage.commands("moveToFinished", 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("flow.failure-counts-as-done", kills=("flow.fail.none",))
def failure_counts_as_done(damage: Damage) -> None:
    """A failed child without any option leaves the dependencies of its parent."""
    damage.commands(
        "moveToFinished",
        'if event(command) == "failed" then local parent = send("HGET", KEYS[12], "parentKey") '
        'if parent then send("SREM", parent .. ":dependencies", KEYS[12]) end end',
    )


@mutant(
    "flow.options-ignored",
    kills=("flow.fail.parent", "flow.fail.continue", "flow.fail.ignore", "flow.fail.remove"),
    by=("flow-failures/a_parent_with_a_failed_child_cannot_complete",),
)
def options_ignored(damage: Damage) -> None:
    """The failure option of a child is not stored."""
    damage.replace(options, "PARENT_FLAG_OPTIONS", ())


@mutant("flow.not-deferred", kills=("flow.fail.parent",))
def not_deferred(damage: Damage) -> None:
    """The parent of a failed child is processed as if nothing had happened."""
    damage.commands("moveToFinished", 'if command[1] == "HSET" and command[3] == "defa" then return 1 end')


@mutant("flow.prioritized-outruns-failure", kills=("flow.fail.parent",))
def prioritized_outruns_failure(damage: Damage) -> None:
    """A prioritized parent is processed although its child has failed it."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HSET" and command[3] == "defa" then '
        'local queue, id = string.match(command[2], "^(.*):([^:]+)$") '
        'if send("ZSCORE", queue .. ":prioritized", id) then return 0 end end',
    )


@mutant(
    "flow.failed-child-pending",
    kills=("flow.child.linked",),
    by=("flow-failures/a_parent_completes_after_it_has_continued",),
)
def failed_child_pending(damage: Damage) -> None:
    """A parent counts a failed child as pending too."""
    damage.commands("moveToFinished", f"if {_CHILD_FAILS} then return 1 end")


@mutant(
    "flow.running-parent-unaware",
    kills=("flow.fail.parent",),
    by=("flow-failures/a_running_parent_fails_with_its_child[waiting-children]",),
)
def running_parent_unaware(damage: Damage) -> None:
    """A parent that does not wait when its child fails is not changed, and later waits for this child."""
    damage.commands(
        "moveToFinished",
        f"if {_CHILD_FAILS} then "
        'local queue, id = string.match(command[2], "^(.*):([^:]+):dependencies$") '
        'if not send("ZSCORE", queue .. ":waiting-children", id) then return 0 end end',
    )


@mutant(
    "flow.failure-stops-below",
    kills=("flow.release",),
    by=("flow-failures/a_failure_goes_up_by_the_option_of_each_level[ignoreDependencyOnFailure]",),
)
def failure_stops_below(damage: Damage) -> None:
    """A job that fails through its child changes nothing in its own parent, which waits on."""
    damage.commands("moveToFinished", f"if {_CHILD_FAILS} and {_FAILS_THROUGH_CHILD} then return 0 end")


@mutant("flow.unsuccessful-unrecorded", kills=("flow.fail.parent",))
def unsuccessful_unrecorded(damage: Damage) -> None:
    """A child that fails its parent is not among the unsuccessful ones."""
    damage.commands("moveToFinished", 'if command[1] == "ZADD" and on(command, "unsuccessful") then return 1 end')


@mutant("flow.failure-unrecorded", kills=("flow.fail.continue", "flow.fail.ignore"))
def failure_unrecorded(damage: Damage) -> None:
    """A parent does not know which of its children failed."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HSET" and on(command, "failed") and command[3] == KEYS[12] then return 1 end',
    )


@mutant("flow.forgotten-failure-remembered", kills=("flow.fail.remove",))
def removed_dependency_remembered(damage: Damage) -> None:
    """With removeDependencyOnFailure a parent remembers the failure."""

    def broken(stored: Function) -> Function:
        def parent_field(given: Mapping[str, Any]) -> dict[str, Any] | None:
            found: dict[str, Any] | None = stored(given)
            return {("idof" if name == "rdof" else name): value for name, value in found.items()} if found else None

        return parent_field

    damage.around(options, "parent_field", broken)


@mutant("flow.children-overlooked", kills=("flow.pending-children-refuse-completion", "flow.fail.continue"))
def children_overlooked(damage: Damage) -> None:
    """A parent with pending children can be completed."""
    damage.commands(
        "moveToFinished", 'if command[1] == "SCARD" and command[2] == KEYS[12] .. ":dependencies" then return 0 end'
    )


@mutant("flow.never-waits-again", kills=("flow.pending-children-refuse-completion",))
def never_waits_again(damage: Damage) -> None:
    """A running parent cannot go back to waiting for its children."""
    damage.commands("moveToWaitingChildren", 'if command[1] == "SCARD" then return 0 end')


@mutant("flow.remove-alone", kills=("flow.remove.parent",))
def remove_alone(damage: Damage) -> None:
    """Removing a parent leaves its children."""
    damage.argument("removeJob", 1, lambda _children: 0)


@mutant("flow.remove-always-all", kills=("flow.remove.parent",))
def remove_always_all(damage: Damage) -> None:
    """Removing a parent always removes its children."""
    damage.argument("removeJob", 1, lambda _children: 1)


@mutant("flow.remove-at-work", kills=("flow.remove.parent",))
def remove_at_work(damage: Damage) -> None:
    """A child that a worker holds does not protect its parent."""
    damage.commands("removeJob", 'if command[1] == "GET" and on(command, "lock") then return false end')


@mutant("flow.removed-child-waited-for", kills=("flow.remove.child",))
def removed_child_waited_for(damage: Damage) -> None:
    """A parent waits on for a child that was removed."""
    damage.commands("removeJob", _NEVER_RELEASED)


@mutant("flow.children-kept", kills=("flow.remove.unprocessed",))
def children_kept(damage: Damage) -> None:
    """Removing the unprocessed children does nothing."""

    async def nothing(_job: Job) -> None:
        return None

    damage.replace(Job, "removeUnprocessedChildren", nothing)


@mutant("flow.children-at-work-removed", kills=("flow.remove.unprocessed",))
def children_at_work_removed(damage: Damage) -> None:
    """Removing the unprocessed children also removes those that a worker holds."""
    damage.commands("removeUnprocessedChildren", 'if command[1] == "GET" and on(command, "lock") then return false end')


@mutant("flow.unlink-releases-nobody", kills=("flow.unlink",))
def unlink_releases_no_parent(damage: Damage) -> None:
    """A parent waits on for a child that was unlinked."""
    damage.commands("removeChildDependency", _NEVER_RELEASED)


@mutant("flow.unlink-always-true", kills=("flow.unlink",))
def unlink_always_true(damage: Damage) -> None:
    """Unlinking a child without parent is said to have worked."""

    def broken(unlink: Function) -> Function:
        async def remove_dependency(job: Job) -> bool:
            return bool(await unlink(job)) or True

        return remove_dependency

    damage.around(Job, "removeChildDependency", broken)
