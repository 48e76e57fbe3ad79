"""`python -m conformance.reference_impl.driver`."""

import sys

from conformance.reference_impl.driver.main import main

sys.exit(main())
