"""Generated JSON has few lines: plain members of an array share them, and each record has its own."""

from __future__ import annotations

import json

from conformance.pages.compact_json import compact_json


def test_plain_members_of_a_long_array_share_lines_up_to_the_width() -> None:
    document = {"releases": [f"5.{number}.0" for number in range(10, 20)], "rows": [{"a": 1}, {"b": [2]}]}
    text = compact_json(document, width=40, depth=2)
    assert json.loads(text) == document
    assert text.splitlines()[1:6] == [
        ' "releases": [',
        '  "5.10.0", "5.11.0", "5.12.0",',
        '  "5.13.0", "5.14.0", "5.15.0",',
        '  "5.16.0", "5.17.0", "5.18.0",',
        '  "5.19.0"',
    ]
    assert ' "rows": [{"a": 1}, {"b": [2]}]' in text
    assert compact_json(document, width=20, depth=2).count("\n  {") == 2
