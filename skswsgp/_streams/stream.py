"""The name of `Stream` in model files that were written before `skswsgp.streams`."""

from skswsgp.streams.stream import Stream

__all__ = ["Stream"]
