"""A user of Redis for one participant of one scenario, which has a password and perhaps fewer rights."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from conformance.driver.errors import OperationUnsupported
from conformance.participants.participant import Participant


@contextmanager
def own_login(client: Participant, *rules: str) -> Iterator[Participant]:
    """The same client as a user who may do all, except for the `rules` of ACL SETUSER (`-info`).

    Its handles must be closed at the end of the block. Raises OperationUnsupported if Redis lets the kit make no user.
    """
    user, password = f"kit-{secrets.token_hex(6)}", secrets.token_hex(12)
    try:
        client.redis().on_every_node("ACL SETUSER", user, "on", f">{password}", "~*", "&*", "+@all", *rules)
    except redis.RedisError as error:
        raise OperationUnsupported("a user of Redis", str(error)) from error
    try:
        yield client.connecting(username=user, password=password)
    finally:
        client.redis().on_every_node("ACL DELUSER", user)
