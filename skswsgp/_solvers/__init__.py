"""Solvers, which find q(u) for a kernel and a start."""
