"""Thresholds that no user sets, in one place: quantity, unit, reason."""

from typing import NamedTuple


class Tuning(NamedTuple):
    """Limits, tolerances and lengths of searches; estimators hold one as `_tuning`.

    Costs are counts of elementary operations unless a unit is given. They were chosen
    on two cores of an AMD EPYC (Zen 4); see `doc/decisions`.
    """

    # --- how many inducing points and neighbours "auto" takes
    # Up to how many rows each is an inducing point: `inducing_numbers / (D + 16)`, or
    # `least_all_inducing` if that is more. A point has D coordinates and a list of 16
    # neighbours, so all of them together take 140 MB.
    least_all_inducing: int = 100_000
    inducing_numbers: int = 17_000_000
    # Cost of the natural solver, H^3 for each row, from which H follows: some ten
    # seconds on one core. Last tries to draw from q(u) may cost as much, in numbers of
    # both matrices times draws and steps: about a minute. Below H = 16, the number of
    # the paper, accuracy falls off, beyond 192 nothing is gained on the data of
    # doc/benchmarks.
    solver_work: float = 6e10
    least_neighbors: int = 16
    most_neighbors: int = 192
    # The default of the paper's experiments, for Adam.
    adam_inducing: int = 256
    # Inducing points that a minibatch shares with `n_shared="auto"`: the number of the
    # paper, or more where lists are long, so that a row keeps some of its own.
    least_shared: int = 128
    shared_lists: int = 4

    # Pairs of a row and a centre in an epoch of k-means, some two seconds. They limit
    # the rows that take part. More than 14,142 inducing points are random rows instead.
    # k-means++ may take a tenth of these pairs, enough for 1,345 inducing points.
    kmeans_pairs: int = 1_000_000_000

    # Rows that a stream keeps, and inducing points that it takes: a chunk then takes
    # a second or two on one core, whatever its size.
    stream_rows: int = 10_000

    # --- the covariance of q(u)
    # Bytes of a full S with Adam's moments and gradients: limit of covariance="full".
    full_covariance_bytes: int = 2**30
    # Bytes of a full S with moments and gradients up to which "auto" is full for Adam.
    auto_covariance_bytes: int = 2**22
    # Cost of a full S for the natural solver, M^3 + N M H for each latent function, up
    # to which "auto" is full: at M = N = 2,860 it doubles the time of a fit.
    full_work: float = 2.5e10

    # --- the natural solver
    # Relative residuals at which conjugate gradients stop. A classifier takes several
    # rounds, and each starts from the solution of the round before, so the first
    # tolerance is loose. It is that of a draw from q(u) found at the inducing points,
    # too: at 3e-3 the deviations of the function are within 2 % of those at 1e-5, and
    # within 7 % at 1e-2. A regression takes one round, which stops at the second
    # tolerance in float32 and at the third in float64.
    round_tolerance: float = 3e-3
    float32_tolerance: float = 1e-3
    final_tolerance: float = 1e-6
    # Draws from q(u): they know a deviation to 9 %, and correlations to 0.13.
    n_draws: int = 64
    # Steps of conjugate gradients with one preconditioner, then with the other.
    first_cg_steps: int = 100
    most_cg_steps: int = 1000
    # Fraction of the diagonal of a system that comes from the prior, for half of its
    # entries: up to 0.9990 where the diagonal was the better preconditioner (73 steps,
    # and 203 with the prior), and from 0.9995 on where the prior was.
    weak_data: float = 0.999

    # --- exact means, where every row is an inducing point
    # Pairs of points, times columns and 18 for the rest of a kernel value, and times
    # the latent functions, up to which n_neighbors="auto" tries exact means. A product
    # with the covariance of 36,690 points of eight columns takes 0.7 s on two cores.
    # With little noise a fit takes 80 of them, which is a minute.
    mean_work: float = 3.5e10
    # Rows up to which each uses all points, in dense matrices: K of so many rows is
    # factorised in some 12 ms at each call of `predict`.
    dense_rows: int = 1000
    # Neighbours that variances come from where means are exact and rows more.
    variance_neighbors: int = 64
    # Most global points of the preconditioner. Half as many took a third more steps for
    # 32,000 rows of kin40k, and twice as many points as many steps.
    mean_global_points: int = 1000
    # A cell of the preconditioner has (mean_cell_work M c)^1/2 of the M points, where c
    # is the cost of a kernel value. Then the factors of all cells together take as long
    # as five to ten products with the covariance of all points.
    mean_cell_work: float = 2.0
    # Relative energy of the residual at which conjugate gradients stop, as the
    # preconditioner measures it. If the preconditioner were exact, a tolerance of 1e-3
    # would add 1e-6 to the variance of an average prediction, relative to the variance
    # of an observation given the others. The preconditioner measures too little: with
    # 1,800 points in cells of 100 the energy was up to fourteen times as large. The law
    # of observations is learned from residuals of the solution, which need more. With
    # a tolerance of 1e-3 the 95 % intervals of naval held 60 % with one size of cells
    # and 93 % with another. With 2e-4 they held 94 %, and with 1e-4 93 %.
    mean_tolerance: float = 2e-4
    mean_cg_steps: int = 200

    # --- learning the kernel from rows given their nearest other rows
    # Rows times features that take part, which sets the time of a neighbour search; a
    # row counts as at least 20 features, for its list of neighbours.
    learning_numbers: int = 4_000_000
    least_learning_rows: int = 1024
    # Neighbours from which a row is predicted while learning. 10,000 rows of kin40k
    # lost .06 nats with 32, which are enough for sites, and gained .01 with 64. A step
    # costs H^3.
    learning_neighbors: int = 48
    site_neighbors: int = 32
    # Columns of a wider table after a map. With so many the derivatives by a map take
    # as long as the rest of a step.
    most_columns: int = 64
    # Steps of Adam for all parameters; curves are flat by then. Maps of labels take
    # half, since their sites change with them.
    learning_steps: int = 200
    # Cost of an evaluation of the marginal likelihood, N^2 (N + 4 D) for each output,
    # up to which the evidence is that of all rows: some 0.3 s, for 2,450 rows of few
    # columns, of which the climb takes a dozen. It is also the cost of the evidence for
    # a map of the columns up to which the evidence decides on a map, and held-out rows
    # beyond: an evaluation for each entry of the map, and the eigenvalues of a matrix
    # of entries. `part_work` is the cost for a part of more rows, which has one row at
    # least: 15 ms, or 990 rows.
    evidence_work: float = 1.5e10
    part_work: float = 1e9

    # --- choosing between kernels on held-out rows
    # Rows that q(u) is found on, held-out ones included: some seconds a candidate.
    # The refinement of labels and counts takes half, which lost nothing.
    holdout_rows: int = 20_000

    # Rows above which early_stopping="auto" holds out a tenth, if the solver trains the
    # kernel: the number of scikit-learn's HistGradientBoosting.
    holdout_above: int = 10_000
