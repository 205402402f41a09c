"""Thresholds that no user sets, in one place: quantity, unit, reason."""

from typing import NamedTuple


class Tuning(NamedTuple):
    """Limits, tolerances and lengths of searches; estimators hold one as `_tuning`.

    Costs are counts of elementary operations unless a unit is given. They were chosen
    on two cores of an AMD EPYC (Zen 4); `doc/decisions` tells how.
    """

    # --- how many inducing points and neighbours "auto" takes
    # Every row is an inducing point up to `inducing_numbers / D` rows, but within
    # these two numbers of rows: Z then takes 64 MB, and so do lists at H = 16.
    least_all_inducing: int = 100_000
    most_all_inducing: int = 1_000_000
    inducing_numbers: int = 8_000_000
    # H^3 a row is the cost of the natural solver; H makes it this much for all rows,
    # which takes some ten seconds on one core. Below 16 accuracy falls off, beyond 192
    # it gains nothing on the data of doc/benchmarks.
    solver_work: float = 6e10
    least_neighbors: int = 16
    most_neighbors: int = 192
    # The defaults of the paper's experiments, for Adam.
    adam_inducing: int = 256
    adam_neighbors: int = 16

    # --- the covariance of q(u)
    # Largest S, with Adam's moments and gradients, that covariance="full" may take.
    full_covariance_bytes: int = 2**30
    # The same size up to which "auto" takes all of S for Adam.
    auto_covariance_bytes: int = 2**22
    # Rows of regression with one output up to which "auto" takes all of S for the
    # natural solver: at 2,048 rows it doubles the time of a fit.
    full_rows: int = 2048

    # --- the natural solver
    # Relative residuals at which conjugate gradients stop: of a round that others
    # follow and of float32, and of a single round.
    round_tolerance: float = 1e-3
    final_tolerance: float = 1e-6
    # Steps of conjugate gradients with one preconditioner, then with the other.
    first_cg_steps: int = 100
    most_cg_steps: int = 1000
    # Bytes of inverse covariances that are added to the precision of kl="local" at
    # once.
    assembly_bytes: int = 2**26

    # --- learning the kernel from rows given their nearest other rows
    # Rows that take part: at most so many, and so many numbers (rows times features),
    # which bounds the time of a neighbour search.
    learning_rows: int = 200_000
    learning_numbers: int = 4_000_000
    # Neighbours from which a row is predicted while learning; 64 gained nothing.
    learning_neighbors: int = 32
    # Steps of Adam for all parameters; curves are flat by then.
    learning_steps: int = 200
    # Rows, and N^2 (N + 4 D) of an evaluation, up to which the marginal likelihood of
    # all rows is maximised in the end: about two seconds.
    exact_rows: int = 256
    exact_work: float = 4e7

    # --- choosing between kernels on held-out rows
    # Rows that q(u) is found on, held-out ones included: some seconds a candidate.
    holdout_rows: int = 20_000
    # Standard deviation of the logarithm of a classifier's kernel variance, around 9.
    variance_spread: float = 2.0

    # --- early stopping "auto": rows above which a tenth is held out
    holdout_above_adam: int = 10_000
    holdout_above_rounds: int = 1_000
