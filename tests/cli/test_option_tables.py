"""The pages of options in docs/reference are those of the declarations."""

from __future__ import annotations

import pytest

from conformance.cli.option_tables import FOLDER, option_pages
from conformance.gate.options import RunConfig
from conformance.options import options_of

PAGES = option_pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name], "run `make generate`"
    assert len(PAGES[name].splitlines()) <= 250


def test_a_declared_option_is_a_row() -> None:
    for option in options_of(RunConfig):
        assert f"| `{option.flag}` |" in PAGES["cli.md"]
