"""The Lua scripts of the pinned npm package, found once per process."""

from __future__ import annotations

import logging
from functools import cache

from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from conformance.upstream.scripts import load_scripts

logger = logging.getLogger("bullmq")


@cache
def official_scripts() -> ScriptTexts:
    """Scripts by name; the package is installed into the user's cache if it is not there yet.

    Raises conformance.problems.EnvironmentProblem where there is no Node, no network for the first installation, or the
    texts are not those of the manifest.
    """
    node = find_node(None)
    package = ensure_package(node, announce=logger.info)
    return load_scripts(package, node)
