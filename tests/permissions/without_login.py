"""The driver of the reference, whose client forgets user and password."""

from __future__ import annotations

from typing import Any

from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts

scripts = official_scripts()
server = make_server(lambda: scripts)
opened = server.ops["open"]


async def forgetful(handle: Any, args: Any) -> Any:
    args["redis"] = {**args["redis"], "username": None, "password": None}
    return await opened(handle, args)


server.ops["open"] = forgetful
server.run()
