"""Likelihoods of a regression other than even Gaussian noise, imported when asked for.

Noise that varies, noise with outliers, and counts: kernels, processes and laws.
"""

from skswsgp.noise.counts import Counts, warn_of_large_counts
from skswsgp.noise.process import learn_noise_model
from skswsgp.noise.robust_start import learn_robust_kernel
from skswsgp.noise.student_noise import StudentNoise

__all__ = [
    "Counts", "StudentNoise", "learn_noise_model", "learn_robust_kernel",
    "warn_of_large_counts",
]  # fmt: skip
