"""The rows of a stream that are kept, and what is known of the others."""

from typing import NamedTuple

import numpy as np

from skswsgp.streams.past_sites import PastSites

# Fitted attributes that stay until the kernel is learned again, and longer once rows
# have left, whose sums are in these units
OF_SCALES = (
    "x_transform_", "classes_", "y_mean_", "y_scale_", "y_transform_", "_seen_targets",
    "linear_map_",
)  # fmt: skip
OF_KERNEL = (
    "kernel_", "noise_variance_", "likelihood_shape_", "variance_scale_", "prior_mean_",
)  # fmt: skip
FORGOTTEN = 1e-3  # weight of a row, of 1 at first, below which a row is not kept


class Stream(NamedTuple):
    """The rows of a stream, or a random sample of them.

    After n rows, row i has the weight gamma^(n - 1 - i), with the forgetting factor
    gamma. Rows with the smallest log E_i + i log gamma stay, for exponential E_i. So
    rows stay with probabilities in proportion to their weights (Efraimidis and
    Spirakis, Information Processing Letters 97, 2006).
    """

    X: np.ndarray  # (n, D), validated, as are all arrays
    y: np.ndarray  # (n,) or (n, Q) in the units of the user
    weight: np.ndarray  # (n,) of the user, positive
    exposure: np.ndarray | None  # (n,)
    number: np.ndarray  # (n,) of rows from the first of the stream on, ascending
    log_draw: np.ndarray  # (n,) log E_i
    seed: int  # of these draws, and of the noise of rows that leave
    forgetting_factor: float
    n_seen: int = 0
    n_learned: int = 0  # rows seen when the kernel was learned last
    factor: float = 1.0  # of the weights since then
    known: dict | None = None  # fitted attributes that were learned then
    past: object = None  # the `PastSites` of rows that left, or None
    points: np.ndarray | None = None  # (M, D') inducing points where rows have left
    # (M,) what the data say of a point over what other points say of it, as precisions
    worth: np.ndarray | None = None
    usual: float = 1.0  # precision of a row of weight 1, relative to the kernel
    begun_with: dict | None = None  # the parameters of the estimator that have to stay

    @classmethod
    def of_fit(cls, kept, forgetting_factor, attributes):
        """Return the stream of the `KeptRows` of a fit with these attributes."""
        stream = cls.of(kept.seed, forgetting_factor, *kept[:4])
        return stream.learned(kept.factor, attributes)

    @classmethod
    def of(cls, seed, forgetting_factor, *chunk):
        """Return the stream of one chunk X, y, weight and exposure."""
        none = [None if one is None else one[:0] for one in chunk]
        empty = cls(*none, np.empty(0, int), np.empty(0), seed, forgetting_factor)
        return empty.joined(*chunk)

    def joined(self, *chunk):
        """Return the stream with one more chunk.

        Rows without an exposure have 1 where others have one.
        """
        n, gamma = len(chunk[0]), self.forgetting_factor
        *chunk, exposure = chunk
        if exposure is None and self.exposure is not None:
            exposure = np.ones(n)
        elif exposure is not None and self.exposure is None:
            self = self._replace(exposure=np.ones(len(self.X)))
        number = np.arange(self.n_seen, self.n_seen + n)
        draws = np.random.default_rng([self.seed, 0, self.n_seen]).exponential(size=n)
        columns = zip(self[:6], (*chunk, exposure, number, np.log(draws)), strict=True)
        both = [a if a is None else np.concatenate([a, b]) for a, b in columns]
        past = self.past and self.past.scaled(gamma**n)
        return Stream(*both, *self[6:])._replace(n_seen=self.n_seen + n, past=past)

    @property
    def learns(self):
        """Whether the kernel is to be learned again: new rows weigh as much as others.

        Rows that have left and are not forgotten know f through the kernel as it was,
        and the rows that are kept are no more than taught it. So it stays then.
        """
        gamma, new = self.forgetting_factor, self.n_seen - self.n_learned
        if gamma == 1.0:
            return new >= self.n_learned and (self.past is None or not self.known)
        return gamma**new * (2.0 - gamma**self.n_learned) <= 1.0

    @property
    def kept(self):
        """The fitted attributes that stay."""
        if not self.learns:
            return self.known
        names = () if self.past is None else OF_SCALES
        return {k: v for k, v in (self.known or {}).items() if k in names}

    @property
    def fading(self):
        """The weights (n,) by age, of 1 for the last row."""
        return self.forgetting_factor ** (self.n_seen - 1.0 - self.number)

    def recent(self, data):
        """Return `TrainingRows` of this stream that say how large errors are by now.

        They are those that are not half forgotten, with the weights of new rows. Older
        ones would say of a function that drifts that their noise is large.
        """
        if self.forgetting_factor == 1.0:
            return data
        rows = np.flatnonzero(self.fading >= 0.5)
        data = data.take(rows)
        weight = data.weight / self.fading[rows]
        return data._replace(weight=weight.astype(data.y.dtype))

    def learned(self, factor, attributes):
        """Return the stream after a fit that took a factor of weights.

        `attributes` are the fitted ones.
        """
        known = {k: v for k, v in attributes.items() if k in OF_SCALES + OF_KERNEL}
        if self.learns:
            return self._replace(n_learned=self.n_seen, factor=factor, known=known)
        return self

    def without_old_rows(self, most, solver, past, points):
        """Return the stream with at most so many rows, and with sums over the others.

        The `solver` has solved for its rows, with inducing `points` (M, D'), behind a
        `past` or None. What is forgotten leaves without a trace.
        """
        rank = self.log_draw + self.number * np.log(self.forgetting_factor)
        stays, known = np.ones(len(rank), bool), self.fading >= FORGOTTEN
        stays[np.argsort(rank, kind="stable")[most:]] = False
        rows = [
            None if column is None else column[stays & known] for column in self[:6]
        ]
        stream = Stream(*rows, *self[6:])
        leave = np.flatnonzero(known & ~stays)
        if len(leave) == 0 and past is None:
            return stream
        sites, n_draws = solver.sites, solver.tuning.n_draws
        if len(leave):
            rng = np.random.default_rng([self.seed, 1, self.n_seen])
            past = PastSites.of(sites, leave, n_draws, rng).joined(past)
        precision = sites.precision.mean(axis=1).sum() / sites.weight.sum()
        return stream._replace(
            past=past,
            points=points,
            worth=np.max(sites.diagonal() / solver.prior.precision[:, None], axis=1),
            usual=precision * self.factor,
        )
