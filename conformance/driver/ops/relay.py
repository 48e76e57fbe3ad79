"""Operations on a relay handle (BullMQ's Relay, 6.4 and newer): messages between processes."""

from __future__ import annotations

import msgspec

from conformance.driver.ops.base import Flag, Nothing, Op, operation


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes and how many of their subscriptions a message was put into the inbox for."""

    nodes: int
    endpoints: int


class RelayCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a namespace."""

    nodes: int
    subscriptions: int
    patterns: int
    retained: int


class RelayNode(msgspec.Struct, frozen=True, kw_only=True):
    """A registered node. `backlog`: unread messages; `dropped`: messages lost because its inbox was full."""

    id: str
    name: str | None
    backlog: int
    dropped: int
    subscriptions: int


class RelayNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes in the order of their registration."""

    nodes: list[RelayNode]


class RelayPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern and the number of its subscriptions."""

    pattern: str
    subscriptions: int


class RelayPatterns(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns in their order as texts."""

    patterns: list[RelayPattern]


class RetainedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a topic keeps, with its data as JSON text."""

    topic: str
    data_raw: str


class RetainedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Retained messages in the order of their expiry."""

    messages: list[RetainedMessage]


class Namespaces(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the namespaces in use."""

    namespaces: list[str]


@operation("relay.publish", on="relay", answer=Delivered)
class Publish(Op[Delivered], frozen=True):
    """Relay.publish(topic, data, {retain}). `retain_ms`: how long the topic keeps it; 0: not at all."""

    topic: str
    data_raw: str
    retain_ms: int = 0


@operation("relay.subscribe", on="relay", answer=Nothing)
class Subscribe(Op[Nothing], frozen=True):
    """Relay.subscribe(pattern); the driver reports what the listener gets as event `message`."""

    pattern: str


@operation("relay.unsubscribe", on="relay", answer=Nothing)
class Unsubscribe(Op[Nothing], frozen=True):
    """End the handle's newest subscription to this pattern."""

    pattern: str


@operation("relay.deleteRetained", on="relay", answer=Flag)
class DeleteRetained(Op[Flag], frozen=True):
    """Relay.deleteRetained(topic): false if the topic keeps nothing."""

    topic: str


@operation("relay.getCounts", on="relay", answer=RelayCounts)
class GetRelayCounts(Op[RelayCounts], frozen=True):
    """Relay.getCounts."""


@operation("relay.getNodes", on="relay", answer=RelayNodes)
class GetNodes(Op[RelayNodes], frozen=True):
    """Relay.getNodes(start, end)."""

    start: int = 0
    end: int = -1


@operation("relay.getPatterns", on="relay", answer=RelayPatterns)
class GetPatterns(Op[RelayPatterns], frozen=True):
    """Relay.getPatterns(start, end)."""

    start: int = 0
    end: int = -1


@operation("relay.getRetained", on="relay", answer=RetainedMessages)
class GetRetained(Op[RetainedMessages], frozen=True):
    """Relay.getRetained(start, end)."""

    start: int = 0
    end: int = -1


@operation("relay.getNamespaces", on="relay", answer=Namespaces)
class GetNamespaces(Op[Namespaces], frozen=True):
    """Relay.getNamespaces."""
