"""Stochastic gradient ascent with Adam, the algorithm of the paper."""
