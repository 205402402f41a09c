"""The models that the papers compare with, to compare the estimators with."""

from skswsgp.baselines.bsgp import BSGPClassifier, BSGPRegressor
from skswsgp.baselines.idsgp import IDSGPClassifier, IDSGPRegressor
from skswsgp.baselines.kernel_features import KernelFeatures
from skswsgp.baselines.local import LocalGPRegressor
from skswsgp.baselines.nearest import NearestNeighborGPRegressor
from skswsgp.baselines.solve import SOLVEGPClassifier, SOLVEGPRegressor
from skswsgp.baselines.svgp import SVGPClassifier, SVGPRegressor

__all__ = [
    "BSGPClassifier",
    "BSGPRegressor",
    "IDSGPClassifier",
    "IDSGPRegressor",
    "KernelFeatures",
    "LocalGPRegressor",
    "NearestNeighborGPRegressor",
    "SOLVEGPClassifier",
    "SOLVEGPRegressor",
    "SVGPClassifier",
    "SVGPRegressor",
]
