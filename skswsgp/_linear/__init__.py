"""The linear systems of the natural solver."""
