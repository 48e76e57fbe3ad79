"""An executable model of BullMQ 5.62.0, in plain Python: the third voice beside oracle and reference. No I/O.

Begin with `order.py`, `adding.py`, `claiming.py` and `finishing.py`; `state.py` lists all there is.
"""

from conformance.model import agreement, legality
from conformance.model.calls import Call, Handle, NotModelled, Prediction
from conformance.model.model import Model
from conformance.model.names import Names

__all__ = ["Call", "Handle", "Model", "Names", "NotModelled", "Prediction", "agreement", "legality"]
