"""Operations on a flow handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.reference_impl.driver.errors import Handler
from conformance.reference_impl.driver.handles import Handles
from conformance.reference_impl.driver.views import Json, raw
from conformance.reference_impl.flows.flow_producer import FlowProducer
from conformance.reference_impl.flows.flow_tree import JobNode


def flow_handlers(handles: Handles) -> dict[str, Handler]:
    """Handlers by the protocol's names."""

    async def add(name: str | None, args: Json) -> Json:
        return _view(await handles.client(name, FlowProducer).add(_flow_job(args["flow"])))

    async def add_bulk(name: str | None, args: Json) -> Json:
        nodes = await handles.client(name, FlowProducer).addBulk([_flow_job(flow) for flow in args["flows"]])
        return {"flows": [_view(node) for node in nodes]}

    async def get_flow(name: str | None, args: Json) -> Json:
        wanted = {"id": args["job"], "queueName": args["queue"]}
        limits = {"depth": args.get("depth", 10), "maxChildren": args.get("max_children", 20)}
        node = await handles.client(name, FlowProducer).getFlow({**wanted, **limits})
        return {"flow": None if node is None else _view(node)}

    return {"flow.add": add, "flow.addBulk": add_bulk, "flow.getFlow": get_flow}


def _flow_job(node: Mapping[str, Any]) -> Json:
    return {
        "name": node["name"],
        "queueName": node["queue"],
        "data": raw(node.get("data_raw"), "{}"),
        "opts": node.get("opts") or {},
        "children": [_flow_job(child) for child in node.get("children") or ()],
    }


def _view(node: JobNode) -> Json:
    """FlowNode; children without a hash are left out, as they are in Node."""
    children = [_view(child) for child in node.children if child is not None]
    return {"id": node.job.known_id, "queue": node.job.queueName, "children": children}
