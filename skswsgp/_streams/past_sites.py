"""The name of `PastSites` in model files that were written before `skswsgp.streams`."""

from skswsgp.streams.past_sites import PastSites

__all__ = ["PastSites"]
