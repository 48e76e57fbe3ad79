"""The defects, one module per subject."""
