"""What holds for all tests of the kit."""

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does; performance is measured in `benchmarks/`.
settings.register_profile("kit", deadline=None)
settings.load_profile("kit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that need Spark, which one process runs one by one: nobody should wait for it at the end."""
    items.sort(key=lambda item: not any(mark.args == ("spark",) for mark in item.iter_markers("xdist_group")))
