"""Streams: what `partial_fit` needs beyond `fit`, imported when it is called."""

from skswsgp.streams.partial_fit import learn_chunk

__all__ = ["learn_chunk"]
