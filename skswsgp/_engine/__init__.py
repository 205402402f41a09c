"""Loops over data, on the CPU and on a GPU."""
