"""An executable model of BullMQ 5.62.0, in plain Python: a third implementation next to oracle and reference. No I/O.

Start with `order.py`, `adding.py`, `claiming.py` and `finishing.py`; `state.py` lists all that there is.
"""

from conformance.model import operations
from conformance.model.calls import ModelHandle, NotModelled, Prediction
from conformance.model.model import Model

__all__ = [
    "Model",
    "ModelHandle",
    "NotModelled",
    "Prediction",
    "operations",
]
