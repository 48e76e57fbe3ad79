"""What a scenario may import: participants, expectations, and the marks that make a function a scenario."""
