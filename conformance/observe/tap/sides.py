"""The two sockets of a connection: what they receive goes to the conversation, and what ends, ends there too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from conformance.observe.tap.conversation import Conversation

UNIX = "unix:"


class ClientSide(asyncio.Protocol):
    """The socket of the client. Makes the connection to Redis when the client has made its own."""

    def __init__(
        self,
        conversation: Conversation,
        tls: ssl.SSLContext | None,
        *,
        refuse: bool,
        on_end: Callable[[Conversation], None],
    ) -> None:
        self._conversation = conversation
        self._tls = tls
        self._refuse = refuse
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._redis = RedisSide(conversation, self)
        self._connecting: asyncio.Task[None] | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._conversation.to_client.connect(self._transport)
        if self._refuse:
            self._conversation.cut(reset=True)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        """The client speaks."""
        self._conversation.from_client(data)

    def eof_received(self) -> bool:
        """The client says no more. It may still listen."""
        self._conversation.client_ended()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        del exc
        self._lost = True
        self._conversation.to_client.drop()
        self._conversation.client_ended()
        self.end_if_both_lost()

    def pause_writing(self) -> None:
        """The client does not read: nor does the tap, so that Redis sees it."""
        self._redis.set_reading(False)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._redis.set_reading(True)

    def set_reading(self, wanted: bool) -> None:
        """Read from the client, or let it wait."""
        if self._transport is not None:
            self._transport.resume_reading() if wanted else self._transport.pause_reading()

    def end_if_both_lost(self) -> None:
        """Tell the tap when nothing is left of the connection."""
        if self._lost and (self._redis.lost or self._refuse):
            self._on_end(self._conversation)

    async def _connect(self) -> None:
        """Reach Redis; a client whose Redis cannot be reached is sent away."""
        loop = asyncio.get_running_loop()
        node = self._conversation.node
        try:
            if node.startswith(UNIX):
                await loop.create_unix_connection(lambda: self._redis, node.removeprefix(UNIX), ssl=self._tls)
            else:
                host, _, port = node.rpartition(":")
                await loop.create_connection(lambda: self._redis, host.strip("[]"), int(port), ssl=self._tls)
        except OSError:
            self._redis.connection_lost(None)


class RedisSide(asyncio.Protocol):
    """The socket to Redis."""

    def __init__(self, conversation: Conversation, client: ClientSide) -> None:
        self.lost = False
        self._conversation = conversation
        self._client = client
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Redis is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._conversation.to_redis.connect(self._transport)

    def data_received(self, data: bytes) -> None:
        """Redis speaks."""
        self._conversation.from_redis(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Redis is gone, or was never there."""
        del exc
        self.lost = True
        self._conversation.to_redis.drop()
        self._conversation.redis_ended()
        self._client.end_if_both_lost()

    def pause_writing(self) -> None:
        """Redis does not read: nor does the tap, so that the client sees it."""
        self._client.set_reading(False)

    def resume_writing(self) -> None:
        """Redis reads again."""
        self._client.set_reading(True)

    def set_reading(self, wanted: bool) -> None:
        """Read from Redis, or let it wait."""
        if self._transport is not None:
            self._transport.resume_reading() if wanted else self._transport.pause_reading()
