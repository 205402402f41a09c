"""What a fitted model says of its columns, imported when it is asked."""

from skswsgp.explain.columns import describe, gradient_and_std, squared_slopes

__all__ = ["describe", "gradient_and_std", "squared_slopes"]
