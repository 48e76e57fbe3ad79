"""The defects, one module per area of the ledger."""
