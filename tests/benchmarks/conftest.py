"""Makes the package of the benchmarks importable, which is not part of the kit."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
