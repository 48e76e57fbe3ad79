"""The check of loops can fail, and lets loops be that end."""

from __future__ import annotations

import ast

import pytest

from .bounded_loops import unbounded_loops

UNBOUNDED = {
    "until a client has nothing more": "while (job := worker.claim()) is not None:\n    worker.complete(job.id)",
    "for ever": "while True:\n    probe()",
    "a bound that is only set": "while not done():\n    deadline = 3",
    "a bound that does not leave": "while True:\n    if now() > deadline:\n        print(deadline)",
    "a count": "for number in count(1):\n    probe(number)",
    "a count by its module": "for number in itertools.count():\n    probe(number)",
    "a sentinel": "for job in iter(worker.claim, None):\n    finish(job)",
    "in a comprehension": "found = [probe() for _ in repeat(None)]",
    "inside of a function": "def wait():\n    with block():\n        while busy():\n            look()",
}
BOUNDED = {
    "a deadline in the condition": "while time.monotonic() < deadline:\n    probe()",
    "what is left": "while (left := due - now()) > 0:\n    sleep(left)",
    "a deadline inside": "while True:\n    if probe():\n        return\n    if now() > deadline:\n        raise Late",
    "what a wait has left": "while True:\n    if wait.left_ms <= 0:\n        raise Late",
    "a number of times": "while not until():\n    if written == MOST_JUNK:\n        raise Full\n    written += 1",
    "where a wait is caught": (
        "while True:\n    try:\n        return wait()\n    except Late:\n        if left_ms <= 50:\n            raise"
    ),
    "a range": "for number in range(100):\n    probe(number)",
    "the method of a list": "for name in names.count('a'), 3:\n    probe(name)",
}


@pytest.mark.parametrize("code", UNBOUNDED.values(), ids=UNBOUNDED)
def test_a_loop_that_nothing_ends_is_refused(code: str) -> None:
    assert len(list(unbounded_loops(ast.parse(code)))) == 1


@pytest.mark.parametrize("code", BOUNDED.values(), ids=BOUNDED)
def test_a_loop_with_a_visible_bound_is_let_be(code: str) -> None:
    assert list(unbounded_loops(ast.parse(code))) == []
