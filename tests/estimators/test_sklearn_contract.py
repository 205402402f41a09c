"""The estimator checks of scikit-learn."""

import pytest
from helpers import ADAM, make
from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor

pytestmark = pytest.mark.usefixtures("few_steps")
REPETITION = {
    "check_sample_weight_equivalence_on_dense_data": (
        "minibatches and held-out rows are drawn by row number, so duplicates change "
        "the draw; test_weights_act_like_repetition replaces this check"
    )
}


def expected_failures(estimator):
    """Return the checks that fail by design, with the reason.

    The natural solver of the regressor merges duplicates, so that none fails.
    """
    draws = isinstance(estimator, SWSGPClassifier) or (
        getattr(estimator, "solver", None) == "adam"
    )
    return REPETITION if draws else {}


@parametrize_with_checks(
    [
        SWSGPRegressor(),
        SWSGPClassifier(),
        make(SWSGPRegressor, n_inducing=30, max_iter=60, **ADAM),
        make(SWSGPClassifier, n_inducing=30, max_iter=60, **ADAM),
        NearestNeighborGPRegressor(),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks(estimator, check):
    check(estimator)
