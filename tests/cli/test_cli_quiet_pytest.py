"""`run` and the reporter of pytest itself."""

from __future__ import annotations

import io

import pytest
from _pytest.terminal import TerminalReporter

from conformance.cli.run import QuietReporter


def interrupted() -> pytest.ExceptionInfo[BaseException]:
    """As when a signal hits an instruction without a line number, such as the end of a `with`."""

    def where_no_line_is() -> None:
        raise KeyboardInterrupt

    where_no_line_is.__code__ = where_no_line_is.__code__.replace(co_linetable=b"")
    with pytest.raises(KeyboardInterrupt) as found:
        where_no_line_is()
    return found


def test_an_interruption_where_no_line_is_does_not_break_the_run_off(pytestconfig: pytest.Config) -> None:
    excinfo = interrupted()
    with pytest.raises(TypeError, match="'NoneType' and 'int'"):
        TerminalReporter(pytestconfig, io.StringIO()).pytest_keyboard_interrupt(excinfo)
    QuietReporter(pytestconfig, io.StringIO()).pytest_keyboard_interrupt(excinfo)


def test_the_end_of_an_interrupted_session_needs_no_record_of_it(pytestconfig: pytest.Config) -> None:
    """Pytest's own reporter insists on one (`assert excrepr is not None`)."""
    with pytest.raises(AssertionError):
        TerminalReporter(pytestconfig, io.StringIO())._report_keyboardinterrupt()
    QuietReporter(pytestconfig, io.StringIO())._report_keyboardinterrupt()
