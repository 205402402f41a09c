"""Kernels as data: compiled from objects, evaluated on tiles of pairs of points."""
