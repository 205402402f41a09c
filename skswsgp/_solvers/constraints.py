"""Constraints of parameters that scikit-learn does not have."""

from numbers import Integral

from sklearn.utils._param_validation import Interval


class Count(Interval):
    """Constraint of a parameter: a positive integer, but neither True nor False."""

    def __init__(self):
        super().__init__(Integral, 1, None, closed="left")

    def is_satisfied_by(self, val):
        """Return whether a value is a count."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)
