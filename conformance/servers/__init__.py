"""Redis for a run: `open_server` turns the user's setting into a running `RedisInstance`."""

from conformance.servers.opening import PrivateServer, RedisInstance, open_server, private_server
from conformance.servers.setting import FORMS

__all__ = ["FORMS", "PrivateServer", "RedisInstance", "open_server", "private_server"]
