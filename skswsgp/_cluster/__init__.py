"""Training rows in blocks that never come together on one machine."""
