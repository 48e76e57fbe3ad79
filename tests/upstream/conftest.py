from __future__ import annotations

import pytest

from conformance.upstream.node import Node, find_node
from conformance.upstream.package import Package, ensure_package


@pytest.fixture(scope="session")
def node() -> Node:
    return find_node(None)


@pytest.fixture(scope="session")
def package(node: Node) -> Package:
    """The real package, in the user's own cache."""
    return ensure_package(node, announce=print)
