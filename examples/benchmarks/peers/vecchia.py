"""Gaussian processes of GPBoost: Vecchia's approximation, and with inducing points."""

from functools import partial

from gpboost import GPModel

from peers.standardized import Standardized


class VecchiaGP(Standardized):
    """Maximum likelihood by the package's optimizer."""

    def __init__(self, gp_approx, n_threads=1, random_state=0):
        super().__init__(n_threads, random_state)
        self.gp_approx = gp_approx

    def _fit(self, X, y):
        self.model_ = GPModel(
            gp_coords=X,
            cov_function="matern_ard",
            cov_fct_shape=2.5,
            gp_approx=self.gp_approx,
            num_parallel_threads=self.n_threads,
            seed=self.random_state,
        )
        self.model_.fit(y=y)

    def _moments(self, X):
        found = self.model_.predict(gp_coords_pred=X, predict_var=True)
        return found["mu"], found["var"]  # of new observations


vecchia = partial(VecchiaGP, "vecchia")
full_scale = partial(VecchiaGP, "full_scale_vecchia")
