"""Sparse-within-Sparse Gaussian processes for scikit-learn.

Classes and modules are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from skswsgp._version import __version__

if TYPE_CHECKING:  # for editors, which read this file and do not run it
    from skswsgp import baselines, displays, kernels, metrics, solvers
    from skswsgp import dask as dask
    from skswsgp._estimators.classifier import SWSGPClassifier
    from skswsgp._estimators.regressor import SWSGPRegressor
    from skswsgp._posterior.extrapolation import ExtrapolationWarning

__all__ = [
    "ExtrapolationWarning",
    "SWSGPClassifier",
    "SWSGPRegressor",
    "__version__",
    "baselines",
    "displays",
    "kernels",
    "metrics",
    "solvers",
]
_CLASSES = {  # and the modules that hold them
    "ExtrapolationWarning": "skswsgp._posterior.extrapolation",
    "SWSGPClassifier": "skswsgp._estimators.classifier",
    "SWSGPRegressor": "skswsgp._estimators.regressor",
}
# Not all of them are in `__all__`, for `skswsgp.dask` needs dask.
_MODULES = "baselines", "dask", "displays", "kernels", "metrics", "solvers"


if not TYPE_CHECKING:  # for which any name would be there

    def __getattr__(name):
        """Import a class or a module when it is first used."""
        if name in _CLASSES:
            globals()[name] = getattr(import_module(_CLASSES[name]), name)
            return globals()[name]
        if name in _MODULES:
            return import_module(f"skswsgp.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    """Return the public names, imported or not."""
    return __all__
