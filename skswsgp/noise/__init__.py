"""Noise that varies, for likelihood="heteroscedastic", imported when it is learned."""

from skswsgp.noise.process import learn_noise_model

__all__ = ["learn_noise_model"]
