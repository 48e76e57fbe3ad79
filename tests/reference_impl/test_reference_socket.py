"""One socket: order, cancellation, losses. A server of the test's own answers where Redis could not be made to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
from redis.asyncio import RedisCluster
from redis.exceptions import AuthenticationError, InvalidResponse, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.cluster_nodes import ClusterNodes
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.connection.resp import packed
from conformance.reference_impl.connection.single_socket import SingleSocket
from conformance.reference_impl.connection.wire import Reply, Wire
from conformance.reference_impl.errors import InvalidArgument
from conformance.servers import RedisInstance

Answer = Callable[[list[bytes]], Awaitable[bytes | None]]


class ScriptedServer:
    """Reads commands and lets the test answer them; None ends the connection. `heard` has one list per connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.heard: list[list[list[bytes]]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands: list[list[bytes]] = []
        self.heard.append(commands)
        while header := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].rstrip() for _ in range(int(header[1:]))]
            commands.append(words)
            reply = await self._answer(words)
            if reply is None:
                break
            writer.write(reply)
        writer.close()


def on(server: RedisInstance, **fields: Any) -> SingleSocket:
    return SingleSocket(Address.of({"nodes": list(server.nodes), **fields}), None)


def run_for(seconds: float, steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, seconds))


def serve_with(answer: Answer, steps: Callable[[SingleSocket, ScriptedServer], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        own = ScriptedServer(answer)
        listener = await asyncio.start_server(own.serve, "127.0.0.1", 0)
        connection = SingleSocket(Address(nodes=(listener.sockets[0].getsockname()[:2],)), None)
        await steps(connection, own)
        await connection.close()
        listener.close()

    run_for(5, run())


async def until_blocked(connection: SingleSocket, clients: int) -> None:
    """Wait until this number of clients waits in a blocking command."""
    deadline = asyncio.get_running_loop().time() + 3
    while b"blocked_clients:%d\r" % clients not in (seen := await connection.command(("INFO", "clients"))):
        assert asyncio.get_running_loop().time() < deadline, seen


async def echo(words: list[bytes]) -> bytes | None:
    return b"$%d\r\n%s\r\n" % (len(words[-1]), words[-1])


class RecordedTransport(asyncio.Transport):
    """Remembers each write, and the end of writing as an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_lost = False

    def is_closing(self) -> bool:
        return self.is_lost

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_lost:  # as uvloop does
            raise RuntimeError("the handler is closed")
        self.writes.append(bytes(data))

    def write_eof(self) -> None:
        self.writes.append(b"")

    def can_write_eof(self) -> bool:
        return True


def test_commands_of_one_turn_go_out_together_and_in_their_order() -> None:
    async def steps() -> None:
        loop, wire, transport = asyncio.get_running_loop(), Wire(), RecordedTransport()
        wire.connection_made(transport)
        replies: list[Reply] = []

        def send(*commands: bytes) -> None:
            made = [(command, loop.create_future()) for command in commands]
            replies.extend(reply for _, reply in made)
            wire.send(made)

        for command in (b"a", b"b", b"c"):
            send(command)
        assert transport.writes == [b"a"], "Redis works on the first while the others are made"
        await asyncio.sleep(0)
        assert transport.writes == [b"a", b"bc"]
        wire.data_received(b"+1\r\n+2\r\n")
        send(b"d", b"e")
        assert transport.writes[2:] == [b"d"], "the first after a reply goes out at once"
        send(b"f")
        wire.data_received(b"+3\r\n")
        send(b"g")
        assert transport.writes[3:] == [], "what came after a reply must not overtake what waits"
        await asyncio.sleep(0)
        assert transport.writes[3:] == [b"efg"]
        send(b"h")
        assert wire.hang_up()
        assert transport.writes[4:] == [b"h", b""], "hanging up leaves nothing unsent"
        wire.data_received(b"+4\r\n+5\r\n+6\r\n+7\r\n+8\r\n")
        assert [await reply for reply in replies] == [b"%d" % number for number in range(1, 9)]

    run_for(5, steps())


def test_redis_works_on_the_first_commands_of_many_while_others_are_packed() -> None:
    async def steps() -> None:
        loop, wire, transport = asyncio.get_running_loop(), Wire(), RecordedTransport()
        wire.connection_made(transport)
        replies: list[Reply] = []
        written_before: list[int] = []

        def packed_one_by_one() -> Iterator[tuple[bytes, Reply]]:
            for _ in range(40):
                written_before.append(len(b"".join(transport.writes)))
                replies.append(loop.create_future())
                yield b"x", replies[-1]
            raise InvalidArgument("the forty-first cannot be packed")

        with pytest.raises(InvalidArgument):
            wire.send(packed_one_by_one())
        assert written_before[1] == 1, "the first goes out at once"
        assert written_before[-1] > 20, "of a turn with many commands most are sent before the last is packed"
        await asyncio.sleep(0)
        assert b"".join(transport.writes) == b"x" * 40, "the packed commands are sent although the next failed"
        assert len(transport.writes) < 6, "a write for each of them would be the dearest step"
        wire.data_received(b"+1\r\n" * 40)
        assert [await reply for reply in replies] == [b"1"] * 40

    run_for(5, steps())


def test_a_transaction_that_cannot_be_packed_opens_no_multi(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server)
        await connection.command(("PING",))
        with pytest.raises(InvalidArgument):
            await connection.transaction([("SET", "before", "1"), ("SET", "too-large", 2**53 + 1)])
        assert await connection.command(("GET", "before")) is None
        assert await connection.command(("PING",)) == b"PONG", "not QUEUED"
        await connection.close()

    run_for(5, steps())


def test_commands_to_a_socket_that_was_just_lost_fail_as_lost_connection() -> None:
    async def steps() -> None:
        loop, wire, transport = asyncio.get_running_loop(), Wire(), RecordedTransport()
        wire.connection_made(transport)
        transport.is_lost = True
        replies = [loop.create_future(), loop.create_future()]
        wire.send([(b"at once", replies[0])])
        wire.send([(b"with the end of the turn", replies[1])])
        assert not wire.hang_up(), "nothing more can be said to Redis"
        await asyncio.sleep(0)
        wire.connection_lost(ConnectionResetError("reset"))
        assert [type(await reply) for reply in replies] == [RedisConnectionError] * 2

    run_for(5, steps())


def test_the_error_of_uvloop_for_a_lost_socket_is_a_lost_connection_in_a_cluster_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = ""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError(message)

    async def steps() -> None:
        nodes = ClusterNodes(Address(nodes=(("127.0.0.1", 1),), mode="cluster"), None)
        nonlocal message
        message = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
        with pytest.raises(RedisConnectionError, match="the handler is closed"):
            await nodes.command(("GET", "key"))
        message = "something else"
        with pytest.raises(RuntimeError, match="something else"):
            await nodes.command(("GET", "key"))
        await nodes.close()

    monkeypatch.setattr(RedisCluster, "execute_command", broken)
    run_for(5, steps())


def test_replies_come_in_the_order_of_the_commands_also_while_it_connects(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server)
        early = [asyncio.create_task(connection.command(("ECHO", str(number)))) for number in range(50)]
        assert await asyncio.gather(*early) == [b"%d" % number for number in range(50)]
        late = await asyncio.gather(*(connection.command(("ECHO", number)) for number in range(50)))
        assert late == [b"%d" % number for number in range(50)]
        assert await connection.pipeline([]) == []
        await connection.close()

    run_for(5, steps())


def test_commands_do_not_wait_for_each_other() -> None:
    """The first reply only comes when the second command has been heard."""
    held_back: list[bytes] = []

    async def answer(words: list[bytes]) -> bytes | None:
        held_back.append(await echo(words) or b"")
        return b"".join(held_back) if len(held_back) == 2 else b""

    async def steps(connection: SingleSocket, _own: ScriptedServer) -> None:
        assert await asyncio.gather(*(connection.command(("ECHO", word)) for word in "ab")) == [b"a", b"b"]

    serve_with(answer, steps)


def test_errors_are_those_of_redis_py(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server)
        with pytest.raises(NoScriptError):
            await connection.command(("EVALSHA", "0" * 40, 0))
        with pytest.raises(ResponseError, match="unknown command"):
            await connection.command(("DANCE",))
        one, error, other = await connection.pipeline([("ECHO", 1), ("DANCE",), ("ECHO", 2)])
        assert (one, other) == (b"1", b"2")
        assert isinstance(error, ResponseError)
        await connection.close()

    run_for(5, steps())


def test_a_transaction_happens_as_a_whole_or_not_at_all(server: RedisInstance, prefix: str) -> None:
    async def steps() -> None:
        connection, key = on(server), f"{prefix}:x"
        assert await connection.transaction([("SET", key, 1), ("INCR", key)]) == [b"OK", 2]
        done, error = await connection.transaction([("INCR", key), ("LPUSH", key, 1)])
        assert done == 3
        assert isinstance(error, ResponseError)
        with pytest.raises(ResponseError, match="unknown command"):
            await connection.transaction([("INCR", key), ("DANCE",)])
        assert await connection.command(("GET", key)) == b"3"
        await connection.close()

    run_for(5, steps())


def test_a_lost_socket_fails_what_is_due_and_the_next_command_opens_another() -> None:
    async def answer(words: list[bytes]) -> bytes | None:
        return None if words[-1] == b"die" else await echo(words)

    async def steps(connection: SingleSocket, own: ScriptedServer) -> None:
        outcomes = await asyncio.gather(
            *(connection.command(("ECHO", word)) for word in ("a", "die", "b")), return_exceptions=True
        )
        assert outcomes[0] == b"a"
        assert [type(outcome) for outcome in outcomes[1:]] == [RedisConnectionError, RedisConnectionError]
        assert outcomes[1] is not outcomes[2]
        assert await connection.command(("ECHO", "c")) == b"c"
        assert [words[-1] for words in own.heard[1]] == [b"c"], "nothing was sent again"

    serve_with(answer, steps)


def test_invalid_resp_ends_the_connection() -> None:
    async def answer(_words: list[bytes]) -> bytes | None:
        return b"HTTP/1.1 400 Bad Request\r\n"

    async def steps(connection: SingleSocket, _own: ScriptedServer) -> None:
        with pytest.raises(InvalidResponse):
            await connection.command(("ECHO", "a"))

    serve_with(answer, steps)


def test_a_cancelled_command_that_blocks_takes_its_socket_with_it(server: RedisInstance, prefix: str) -> None:
    """Otherwise a dead connection would pop a later marker."""

    async def steps() -> None:
        connection, other, key = on(server), on(server), f"{prefix}:marker"
        waiting = asyncio.create_task(connection.command(("BZPOPMIN", key, 0)))
        await until_blocked(other, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_blocked(other, 0)
        await other.command(("ZADD", key, 0, "0"))
        assert await connection.command(("ZCARD", key)) == 1
        await connection.close()
        await other.close()

    run_for(5, steps())


def test_a_cancelled_command_leaves_its_neighbours_alone(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server)
        await connection.command(("PING",))
        number = await connection.command(("CLIENT ID",))
        tasks = [asyncio.create_task(connection.command(("ECHO", word))) for word in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert (tasks[0].result(), tasks[2].result(), tasks[1].cancelled()) == (b"a", b"c", True)
        assert await connection.command(("CLIENT ID",)) == number
        await connection.close()

    run_for(5, steps())


def test_a_command_cancelled_while_it_connects_is_never_sent() -> None:
    async def steps(connection: SingleSocket, own: ScriptedServer) -> None:
        first, second = (asyncio.create_task(connection.command(("ECHO", word))) for word in "ab")
        await asyncio.sleep(0)
        first.cancel()
        assert await second == b"b"
        assert own.heard == [[[b"ECHO", b"b"]]]

    serve_with(echo, steps)


def test_a_closed_connection_refuses(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server)
        await connection.command(("PING",))
        await connection.close()
        with pytest.raises(RedisConnectionError, match="closed"):
            await connection.command(("PING",))

    run_for(5, steps())


def test_a_closed_port_is_a_lost_connection() -> None:
    async def steps() -> None:
        listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        address = Address(nodes=(listener.sockets[0].getsockname()[:2],))
        listener.close()
        await listener.wait_closed()
        connection = SingleSocket(address, None)
        with pytest.raises(RedisConnectionError, match="no connection to 127"):
            await connection.command(("PING",))
        await connection.close()

    run_for(5, steps())


def test_it_introduces_itself_before_anything_else() -> None:
    async def steps() -> None:
        own = ScriptedServer(echo)
        listener = await asyncio.start_server(own.serve, "127.0.0.1", 0)
        nodes = (listener.sockets[0].getsockname()[:2],)
        connection = SingleSocket(Address(nodes=nodes, db=3, username="u", password="p"), "me")
        await connection.command(("ECHO", "x"))
        sent = [b" ".join(words) for words in own.heard[0]]
        assert sent == [b"AUTH u p", b"SELECT 3", b"CLIENT SETNAME me", b"ECHO x"]
        await connection.close()
        listener.close()

    run_for(5, steps())


@pytest.mark.parametrize(
    ("name", "is_sent"),
    [("bull:cQ==:w:me", True), ("two words", False), ("caf\u00e9", False), ("a\n", False), ("", False)],
)
def test_a_name_that_redis_would_refuse_is_not_sent(name: str, is_sent: bool) -> None:
    async def steps() -> None:
        own = ScriptedServer(echo)
        listener = await asyncio.start_server(own.serve, "127.0.0.1", 0)
        connection = Connection(Address(nodes=(listener.sockets[0].getsockname()[:2],)), name=name)
        await connection.command("ECHO", "x")
        assert (len(own.heard[0]) == 2) == is_sent
        await connection.close()
        listener.close()

    run_for(5, steps())


def test_a_refused_login_is_raised_at_the_caller(server: RedisInstance) -> None:
    async def steps() -> None:
        connection = on(server, password="wrong", username="nobody")
        with pytest.raises(AuthenticationError):
            await connection.command(("PING",))
        await connection.close()

    run_for(5, steps())


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (("SCRIPT LOAD", "x"), b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n"),
        (("A", "\ud83d\ude00", 1), b"*3\r\n$1\r\nA\r\n$4\r\n\xf0\x9f\x98\x80\r\n$1\r\n1\r\n"),
        (("A", "\ud800", None), b"*3\r\n$1\r\nA\r\n$3\r\n\xef\xbf\xbd\r\n$0\r\n\r\n"),
        (
            ("A", 2**53, -1, 1.5, True),
            b"*5\r\n$1\r\nA\r\n$16\r\n9007199254740992\r\n$2\r\n-1\r\n$3\r\n1.5\r\n$4\r\ntrue\r\n",
        ),
    ],
)
def test_commands_as_ioredis_writes_them(command: tuple[Any, ...], sent: bytes) -> None:
    assert packed(command) == sent
