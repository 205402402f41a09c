"""Neighbour lists: which inducing points each row of data uses."""
