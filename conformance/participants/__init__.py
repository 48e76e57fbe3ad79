"""The imports of scenarios: participants, expectations, and the marks that make a function a scenario."""
