from __future__ import annotations

import pytest

from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import BullMQPackage, ensure_package


@pytest.fixture(scope="session")
def node() -> NodeBinary:
    return find_node(None)


@pytest.fixture(scope="session")
def package(node: NodeBinary) -> BullMQPackage:
    """The real package, in the user's own cache."""
    return ensure_package(node, announce=print)
