"""The check of output can fail, and accepts what escapes."""

from __future__ import annotations

import ast

import pytest

from .foreign_output import bypasses, main, returned, unsafe_parts

CARELESS = {
    "a text as markup": "console.print(job.id)",
    "between words": "console.print(f'job {job.id}')",
    "on a line of its own": "print(text)",
    "by click": "click.echo(message)",
    "in a table": "table = Table()\ntable.add_row('job', job.id)",
    "in cells": "table.add_row(*cells)",
    "literally, but with escapes": "console.print(Text(job.id))",
    "as a part": "line = Text.assemble(('x', 'red'), job.id)",
    "as Markdown": "console.print(Markdown(text))",
    "from another function": "def said() -> str:\n    return ''\nconsole.print(said())",
    "in one of two cases": "console.print(terminal_text(a) if a else a)",
    "inside of a method": "class View:\n    def show(self, text: str) -> None:\n        self.console.print(text)",
    "only escaped elsewhere": "def a():\n    line = terminal_text(x)\ndef b(line):\n    console.print(line)",
}
CAREFUL = {
    "a constant": "console.print('nothing')",
    "numbers": "console.print(f'{share:.0%} of {len(jobs)}')",
    "escaped": "console.print(terminal_text(f'job {job.id}'), soft_wrap=True)",
    "in cells": "table.add_row(*map(terminal_text, cells), *(terminal_text(cell) for cell in more))",
    "a block of another function": "def said() -> Text:\n    return Text('')\nconsole.print(said())",
    "a block by its name": "line = terminal_text(text)\nconsole.print(line)",
    "a block that was handed in": "def show(block: RenderableType) -> None:\n    console.print(block)",
    "blocks in turn": "def all() -> Iterator[Text]:\n    yield Text('')\nfor block in all():\n    console.print(block)",
    "nothing shown": "logging.info(text)",
}


@pytest.mark.parametrize("code", CARELESS.values(), ids=CARELESS)
def test_foreign_text_that_is_not_escaped_is_found(code: str) -> None:
    tree = ast.parse(code)
    assert list(bypasses(tree, returned([tree])))


@pytest.mark.parametrize("code", CAREFUL.values(), ids=CAREFUL)
def test_escaped_text_is_let_be(code: str) -> None:
    tree = ast.parse(code)
    assert list(bypasses(tree, returned([tree]))) == []


def test_a_template_marks_no_value_as_safe() -> None:
    assert list(unsafe_parts("<p>{{ job.id | safe }}</p>"))
    assert list(unsafe_parts('{{ script | safe }}{{ lanes.get(key(run), "")|safe }}')) == []


def test_no_output_bypasses_the_door() -> None:
    assert main() == 0
