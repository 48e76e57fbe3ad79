"""Types that several threads use at once are built before any thread can."""

from __future__ import annotations

import subprocess
import sys

FIRST_USES = """
import sys
import msgspec
from conformance.driver.ops import REGISTRY, events, queue

built = []

def note(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        built.append(frame.f_locals["obj"].__name__)

def uses(types):
    for each in types:
        try:
            msgspec.convert({}, each)
        except msgspec.ValidationError:
            pass

class Unknown(msgspec.Struct):
    inner: int

sys.setprofile(note)
uses([*REGISTRY.values(), *(each.answer for each in REGISTRY.values()), *events.EVENT_ARGS.values()])
print("protocol", *built)
uses([Unknown])
print("control", *built)
"""


def test_no_type_of_the_protocol_is_built_at_its_first_use() -> None:
    """msgspec 0.22.0 kills the process when a second thread uses a type that is half built; seen once in chaos."""
    done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["protocol", "control Unknown", ""]
