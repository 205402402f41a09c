"""Pictures of predictions, of how far they can be trusted, and of fitted models.

They are used as the displays of scikit-learn are, and need matplotlib to draw.
"""

from skswsgp.displays.coverage import CoverageDisplay
from skswsgp.displays.neighborhood import NeighborhoodDisplay
from skswsgp.displays.prediction_interval import PredictionIntervalDisplay
from skswsgp.displays.relevance import RelevanceDisplay
from skswsgp.displays.reliability import ReliabilityDisplay
from skswsgp.displays.training import TrainingDisplay

__all__ = [
    "CoverageDisplay",
    "NeighborhoodDisplay",
    "PredictionIntervalDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "TrainingDisplay",
]
