"""The reference client behind the driver protocol: `python -m conformance.reference_impl.driver`."""
