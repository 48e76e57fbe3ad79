"""`bugs`: what it lists, what it proves, and what it says of a wrong selection."""

from __future__ import annotations

import pytest

from conformance.bugs.corpus import load_corpus
from conformance.cli import bugs as verb

from .cli_program import Program


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "nothing to prove"),
        (("node-2466", "--all"), "nothing to prove"),
        (("node-246",), "unknown bug 'node-246'"),
        (("--sample", "0"), "0"),
    ],
)
def test_a_wrong_selection_of_proofs(call: Program, words: tuple[str, ...], text: str) -> None:
    done = call("bugs", "prove", *words)
    assert done.code == 2
    assert text in done.err


def test_the_list_can_be_narrowed(call: Program) -> None:
    hidden, every = (
        call("bugs", "list", "--not-visible", "--port", "node").out,
        call("bugs", "list", "--port", "node").out,
    )
    rows = [line for line in hidden.splitlines() if line.startswith("node-")]
    assert rows
    assert all("not visible" in row for row in rows)
    # The recall is about the port, and not about those of its bugs that are listed.
    assert hidden.splitlines()[-1].partition(";")[2] == every.splitlines()[-1].partition(";")[2]
    assert call("bugs", "list", "--area", "poetry").complains(5, "no bug matches")


def test_the_worst_result_is_the_exit_code() -> None:
    assert [verb.worst_code(codes) for codes in ([], [0, 0], [0, 3], [3, 1, 0])] == [0, 0, 3, 1]


@pytest.mark.slow
@pytest.mark.long(1)
def test_a_bug_of_an_old_release_is_caught(call: Program) -> None:
    # The oldest release: the driver has to do without what came later.
    *_, caught = (row for row in load_corpus().values() if row.status == "caught" and row.port == "node")
    done = call("bugs", "prove", caught.id)
    assert (done.code, done.out[:6]) == (0, "caught"), done.out + done.err
