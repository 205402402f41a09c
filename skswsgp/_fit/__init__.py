"""A fit as calls of plain functions on named tuples: encode, learn, solve, the law."""
