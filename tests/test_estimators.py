"""The contract of scikit-learn."""

import pytest
from helpers import ADAM
from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor

pytestmark = pytest.mark.usefixtures("few_steps")
REPETITION = {
    "check_sample_weight_equivalence_on_dense_data": (
        "repeated rows are drawn in another order while training; "
        "test_weights_act_like_repetition takes its place"
    )
}


@parametrize_with_checks(
    [
        SWSGPRegressor(),
        SWSGPClassifier(),
        SWSGPRegressor(n_inducing=30, max_iter=60, **ADAM),
        SWSGPClassifier(n_inducing=30, max_iter=60, **ADAM),
        NearestNeighborGPRegressor(),
    ],
    expected_failed_checks=lambda estimator: REPETITION,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
