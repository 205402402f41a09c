"""Noise that varies or has outliers, imported when a likelihood asks for it."""

from skswsgp.noise.process import learn_noise_model
from skswsgp.noise.robust_start import learn_robust_kernel
from skswsgp.noise.student_noise import StudentNoise

__all__ = ["StudentNoise", "learn_noise_model", "learn_robust_kernel"]
