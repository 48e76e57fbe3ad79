"""What Spark's libraries say when a verb is interrupted."""

from __future__ import annotations

import logging

import pytest

from reports.session import says_more_than_an_interruption


def record_of(error: BaseException) -> logging.LogRecord:
    return logging.LogRecord("py4j", logging.ERROR, "", 0, "while sending", None, (type(error), error, None))


def test_the_stack_of_an_interrupted_call_is_not_printed() -> None:
    broken_meanwhile = BrokenPipeError("Broken pipe")
    broken_meanwhile.__context__ = KeyboardInterrupt()
    assert not says_more_than_an_interruption(record_of(KeyboardInterrupt()))
    assert not says_more_than_an_interruption(record_of(broken_meanwhile))


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("wrong")])
def test_every_other_error_is(error: Exception) -> None:
    assert says_more_than_an_interruption(record_of(error))
