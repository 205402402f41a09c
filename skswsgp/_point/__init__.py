"""The formulas of one datum, each with its adjoint, for CPU and GPU alike."""
