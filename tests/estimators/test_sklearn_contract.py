"""The estimator checks of scikit-learn."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.solvers import Adam

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
        isinstance(getattr(estimator, "solver", None), Adam)
    )
    return REPETITION if draws else {}


@parametrize_with_checks(
    [SWSGPRegressor(), SWSGPClassifier()], expected_failed_checks=expected_failures
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.slow  # the steps of Adam for classes take a minute to compile
@parametrize_with_checks(
    [
        kind(n_inducing=30, learn_kernel=False, solver=Adam(max_iter=60))
        for kind in (SWSGPRegressor, SWSGPClassifier)
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks_of_adam(estimator, check):
    check(estimator)
