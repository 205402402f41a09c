"""Rows of a table: their columns, units, copies, and the inducing points among them."""
