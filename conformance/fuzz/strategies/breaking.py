"""Calls whose connection breaks at an exact moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from conformance.fuzz.cutting import may_be_cut
from conformance.fuzz.scene import MAIN, OTHER, Scene
from conformance.fuzz.steps import CallStep, Step
from conformance.fuzz.strategies import controlling, editing, producing, working
from conformance.observe.tap.rules import PHASES

_PHASES = st.sampled_from(PHASES)
_BY_ANYBODY = st.sampled_from((producing.adding, editing.changing, editing.changing, controlling.controlling))
_BY_WORKERS = st.sampled_from((working.completing, working.putting_back, working.renewing))


@st.composite
def breaking(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """A change whose call is cut off, where it is known what may come of that; else the same change, whole."""
    active = any(scene.queue(name).in_states({"active"}) for name in (MAIN, OTHER))
    make = draw(_BY_WORKERS if active and draw(st.booleans()) else _BY_ANYBODY)
    *before, last = draw(make(scene))
    if isinstance(last, CallStep) and may_be_cut(last):
        last = replace(last, cut=draw(_PHASES))
    return [*before, last]
