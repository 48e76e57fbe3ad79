"""Replaces addresses of cluster nodes in replies by addresses of the tap, so that clients cannot bypass it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from conformance.observe.tap.recording import TappedCommand
from conformance.observe.tap.resp import Reply, decode, encode, value_of

_REDIRECTION = re.compile(rb"-(MOVED|ASK) (\d+) (\S*):(\d+)")
_NODE_ADDRESS = re.compile(rb"(?m)^((?:txt:)?[0-9a-f]{40} )([^ ]*?):(\d+)(?=[@ ,])")


class ClusterAddresses:
    """Maps addresses of nodes to addresses of the tap, both as `host:port`.

    Unknown addresses (of a node that joined later) stay unchanged. The host in a reply may be empty: it then means the
    node that sent the reply, and only the port counts.
    """

    def __init__(self, taps: Mapping[str, str]) -> None:
        self._taps = {_split(node): _split(tap) for node, tap in taps.items()}

    def rewritten(self, command: TappedCommand, raw: bytes) -> bytes:
        """The reply for the client."""
        if raw.startswith((b"-MOVED ", b"-ASK ")):
            return self._redirection(command, raw)
        if command.name != "CLUSTER" or len(command.args) < 2 or raw[0] in b"-!":
            return raw
        subcommand = command.args[1].upper()
        if subcommand == b"SLOTS":
            return encode(self._slots(command, decode(raw)))
        if subcommand == b"SHARDS":
            return encode(self._shards(command, decode(raw)))
        return encode(self._nodes(command, decode(raw))) if subcommand in {b"NODES", b"REPLICAS", b"SLAVES"} else raw

    def _of(self, command: TappedCommand, host: bytes, port: bytes) -> tuple[bytes, bytes] | None:
        """The address of the tap for a node; None if there is none."""
        sender = _split(command.node)[0]
        tap = self._taps.get((host if host not in {b"", b"?"} else sender, port))
        # A node may announce a local name that differs from the one the tap connected to.
        return tap or self._taps.get((sender, port)) if _is_local(host) else tap

    def _redirection(self, command: TappedCommand, raw: bytes) -> bytes:
        match = _REDIRECTION.match(raw)
        tap = self._of(command, match[3], match[4]) if match else None
        return raw if match is None or tap is None else b"-%b %b %b:%b\r\n" % (match[1], match[2], *tap)

    def _slots(self, command: TappedCommand, reply: Reply) -> Reply:
        """Rows of first slot, last slot, and nodes of address, port, id and more."""
        rows = []
        for row in reply.items or ():
            items = row.items or ()
            nodes = [self._slot_node(command, node) for node in items[2:]]
            rows.append(Reply(row.kind, items=(*items[:2], *nodes)))
        return Reply(reply.kind, items=tuple(rows))

    def _slot_node(self, command: TappedCommand, node: Reply) -> Reply:
        items = node.items or ()
        if len(items) < 2:
            return node
        tap = self._of(command, items[0].text or b"", items[1].text or b"")
        if tap is None:
            return node
        return Reply(node.kind, items=(Reply(b"$", tap[0]), Reply(b":", tap[1]), *items[2:]))

    def _shards(self, command: TappedCommand, reply: Reply) -> Reply:
        """Shards are maps with `nodes`, nodes are maps with `ip`, `port` and `endpoint`; in RESP2 flat arrays."""
        shards = []
        for shard in reply.items or ():
            pairs = list(shard.items or ())
            for index in range(0, len(pairs) - 1, 2):
                if pairs[index].text == b"nodes":
                    nodes = tuple(self._shard_node(command, node) for node in pairs[index + 1].items or ())
                    pairs[index + 1] = Reply(pairs[index + 1].kind, items=nodes)
            shards.append(Reply(shard.kind, items=tuple(pairs)))
        return Reply(reply.kind, items=tuple(shards))

    def _shard_node(self, command: TappedCommand, node: Reply) -> Reply:
        pairs = list(node.items or ())
        fields = {pairs[index].text: index + 1 for index in range(0, len(pairs) - 1, 2)}
        port_field = b"port" if b"port" in fields else b"tls-port"
        if b"ip" not in fields or port_field not in fields:
            return node
        tap = self._of(command, pairs[fields[b"ip"]].text or b"", pairs[fields[port_field]].text or b"")
        if tap is None:
            return node
        for name, text in ((b"ip", tap[0]), (b"endpoint", tap[0]), (port_field, tap[1])):
            if name in fields:
                kind = pairs[fields[name]].kind
                pairs[fields[name]] = Reply(kind if kind != b"_" else b"$", text)
        return Reply(node.kind, items=tuple(pairs))

    def _nodes(self, command: TappedCommand, reply: Reply) -> Reply:
        """Lines of `id host:port@bus,name flags ...`; REPLICAS is an array of such lines."""

        def replaced(match: re.Match[bytes]) -> bytes:
            tap = self._of(command, match[2], match[3])
            return match[0] if tap is None else b"%b%b:%b" % (match[1], *tap)

        inner = value_of(reply)
        if inner.items is not None:
            return Reply(inner.kind, items=tuple(self._nodes(command, line) for line in inner.items))
        return Reply(inner.kind, _NODE_ADDRESS.sub(replaced, inner.text or b""))


class NoClusterAddresses(ClusterAddresses):
    """For a single Redis: replies stay unchanged."""

    def __init__(self) -> None:
        super().__init__({})

    def rewritten(self, command: TappedCommand, raw: bytes) -> bytes:
        """See `ClusterAddresses.rewritten`."""
        del command
        return raw


def _split(address: str) -> tuple[bytes, bytes]:
    host, _, port = address.rpartition(":")
    return host.strip("[]").encode(), port.encode()


def _is_local(host: bytes) -> bool:
    """Whether a node may announce its own host under this name."""
    return host in {b"", b"?", b"localhost", b"127.0.0.1", b"::1", b"0.0.0.0"}
