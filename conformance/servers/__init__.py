"""Where Redis comes from: `open_server` turns what the user wrote into a `Server` that answers."""

from conformance.servers.opening import PrivateServer, open_server, private_server
from conformance.servers.server import Server
from conformance.servers.setting import FORMS

__all__ = ["FORMS", "PrivateServer", "Server", "open_server", "private_server"]
