"""The contract of scikit-learn."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor

REPETITION = {
    "check_sample_weight_equivalence_on_dense_data": (
        "minibatches of repeated rows are drawn in another order; "
        "test_weights_act_like_repetition takes its place"
    )
}


@parametrize_with_checks(
    [
        SWSGPRegressor(n_inducing=30, max_iter=60),
        SWSGPClassifier(n_inducing=30, max_iter=60),
        NearestNeighborGPRegressor(),
    ],
    expected_failed_checks=lambda estimator: REPETITION,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
