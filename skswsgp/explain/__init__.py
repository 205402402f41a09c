"""What an estimator says of itself and its columns, imported when it is asked."""

from skswsgp.explain.card import describe
from skswsgp.explain.columns import gradient_and_std, squared_slopes
from skswsgp.explain.novelty import novel_rows
from skswsgp.explain.page import page_of

__all__ = ["describe", "gradient_and_std", "novel_rows", "page_of", "squared_slopes"]
