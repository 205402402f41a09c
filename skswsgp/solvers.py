"""How q(u) is found: the solvers as objects that hold their parameters.

``solver="natural"`` is ``Natural()`` and ``solver="adam"`` is ``Adam()``. A search
reaches the parameters of an object by names such as ``solver__batch_size``.
"""

from numbers import Real

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from skswsgp._solvers.constraints import Count
from skswsgp._solvers.natural import NaturalSolver

__all__ = ["Adam", "Natural"]

POSITIVE = Interval(Real, 0, None, closed="neither")


class Natural(BaseEstimator):
    """Natural-gradient steps, solved in closed form.

    The kernel is as it was learned before. Regression with Gaussian noise takes one
    step, and other likelihoods take some rounds of conjugate-computation variational
    inference [1]_. The prior lets each inducing value depend on its H nearest
    predecessors [2]_.

    Parameters
    ----------
    optimize_inducing : bool, default=False
        Whether inducing inputs are trained too. There are six solves for q(u) then, and
        between two of them two epochs of `Adam` with its defaults move the inducing
        inputs, the kernel and the noise. The best solve is kept: held-out rows tell it
        where there are more than 10,000 rows or validation data, and the loss does
        elsewhere.
    kl_weight : float, default=1.0
        Weight of the divergence of q(u) from its prior.
    forgetting_factor : float, default=1.0
        What the weight of earlier rows is multiplied by for each new row of
        `partial_fit`, above 0 and at most 1. A stream with 0.999 remembers some 1,000
        rows. `fit` does not read it.

    References
    ----------
    .. [1] M. E. Khan, W. Lin, "Conjugate-Computation Variational Inference", AISTATS
       2017.
    .. [2] L. Wu, G. Pleiss, J. P. Cunningham, "Variational Nearest Neighbor Gaussian
       Process", ICML 2022.

    Examples
    --------
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.solvers import Natural
    >>> model = SWSGPRegressor(n_inducing=50, solver=Natural(optimize_inducing=True))
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "optimize_inducing": ["boolean"],
        "kl_weight": [POSITIVE],
        "forgetting_factor": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self, *, optimize_inducing: bool = False, kl_weight: float = 1.0,
        forgetting_factor: float = 1.0,
    ):  # fmt: skip
        self.optimize_inducing = optimize_inducing
        self.kl_weight = kl_weight
        self.forgetting_factor = forgetting_factor

    @property
    def _solver(self):
        """The subclass of `Solver` that trains."""
        if not self.optimize_inducing:
            return NaturalSolver
        from skswsgp._adam.alternating import AlternatingSolver

        return AlternatingSolver


class Adam(BaseEstimator):
    """Steps of Adam on minibatches, the algorithm of the paper.

    Algorithm 1 of [1]_ trains the kernel, the noise, q(u) and, if asked to, the
    inducing inputs.

    Parameters
    ----------
    batch_size : int, default=64
        Number of rows of a minibatch. Blocks of a dask collection have their own.
    learning_rate : float, default=0.02
        Length of the first step. It falls along half a cosine to a hundredth, over
        `max_iter` epochs or fewer (`n_iter_no_change`), and stays constant in a stream.
    max_iter : int, default=200
        Largest number of epochs. An end there is no `ConvergenceWarning`, because the
        learning rate has fallen to its end.
    tol : float, default=1e-5
        An epoch that improves the best loss, or the best validation score, by less
        than this, in nats a row, counts as no change.
    n_iter_no_change : int, default=10
        Number of epochs without change after which training stops, where rows are held
        out. Otherwise the learning rate then falls to its end over as many epochs as
        have passed, or what is left of `max_iter`: a loss that stays where it is says
        that steps are too long.
    early_stopping : bool or "auto", default="auto"
        Whether rows are held out, to stop when their predictive density no longer
        rises, and to keep the best epoch. "auto" holds rows out where there are more
        than 10,000, but none of dask collections.
    validation_fraction : float, default=0.1
        Fraction of the rows that early stopping holds out.
    optimize_inducing : bool, default=False
        Whether inducing inputs are trained too.
    n_shared : int, "auto" or None, default=None
        Number of inducing points that the rows of a minibatch share, which is SWSGP-U,
        section 4.5 of [1]_. With None each row uses its own H nearest points. Otherwise
        all rows use the union of their nearest points, with one divergence from the
        prior, so that q(u) is trained to be right for rows together. A union of more
        than `n_shared` points keeps those that are nearest to some row: the nearest
        point of each row comes first, then the second nearest, and so on. "auto" is the
        largest of 128, 4 H and twice `batch_size`, at most M. Predictions use the H
        nearest points in any case. Such steps run on the CPU.
    kl_weight : float or "auto", default="auto"
        Weight of the divergence of q(u) from its prior; the paper's is 1.0. "auto" is
        max(1, M / H), which makes up for the M - H points that the divergence of a row
        leaves out, and 1 where the rows of a minibatch share their points.

    References
    ----------
    .. [1] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
       Gaussian Processes using Neighbor Information", ICML 2021.

    Examples
    --------
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.solvers import Adam
    >>> model = SWSGPRegressor(n_inducing=50, solver=Adam(max_iter=20))
    >>> model.set_params(solver__batch_size=128).solver
    Adam(batch_size=128, max_iter=20)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "batch_size": [Count()],
        "learning_rate": [POSITIVE],
        "max_iter": [Count()],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_iter_no_change": [Count()],
        "early_stopping": ["boolean", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "optimize_inducing": ["boolean"],
        "n_shared": [Count(), StrOptions({"auto"}), None],
        "kl_weight": [POSITIVE, StrOptions({"auto"})],
    }

    def __init__(
        self, *, batch_size: int = 64, learning_rate: float = 0.02, max_iter: int = 200,
        tol: float = 1e-5, n_iter_no_change: int = 10,
        early_stopping: bool | str = "auto", validation_fraction: float = 0.1,
        optimize_inducing: bool = False, n_shared: int | str | None = None,
        kl_weight: float | str = "auto",
    ):  # fmt: skip
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.optimize_inducing = optimize_inducing
        self.n_shared = n_shared
        self.kl_weight = kl_weight

    @property
    def _solver(self):
        """The subclass of `Solver` that trains."""
        from skswsgp._adam.solver import AdamSolver

        return AdamSolver


SOLVERS = {"natural": Natural, "adam": Adam}  # by the words of `solver`
