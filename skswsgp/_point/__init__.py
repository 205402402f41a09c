"""The formulas of one row of data, each with its adjoint."""
