"""What a fitted model says of its columns, imported when it is asked."""

from skswsgp.explain.card import describe
from skswsgp.explain.columns import gradient_and_std, squared_slopes

__all__ = ["describe", "gradient_and_std", "squared_slopes"]
