"""Engines: the loops over rows of data and the arrays they work on, on CPU and GPU."""
