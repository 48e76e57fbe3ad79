"""Where Redis comes from: `open_server` turns what the user wrote into a `RedisInstance` that answers."""

from conformance.servers.opening import PrivateServer, RedisInstance, open_server, private_server
from conformance.servers.setting import FORMS

__all__ = ["FORMS", "PrivateServer", "RedisInstance", "open_server", "private_server"]
