"""The sites of rows in many places, which answer as `SiteRows` of one place do."""

import numpy as np


class ManySites:
    """`SiteRows` of blocks, each where its block lies.

    `parts` are those of `workers`, and `n_rows` is the number of all rows. `engine` is
    that of the caller.
    """

    def __init__(self, workers, parts, n_rows, engine):
        self.workers, self.parts, self.n_rows = workers, parts, n_rows
        self.engine = engine

    def _changed(self, name, *arguments):
        return self._mapped(_method, name, *arguments)

    def _mapped(self, function, *arguments):
        parts = self.workers.map(function, self.parts, *arguments)
        return ManySites(self.workers, parts, self.n_rows, self.engine)

    def _sum(self, name, *arguments):
        return self.workers.total(_method, self.parts, name, *arguments)

    def first(self, m, S):
        """See `SiteRows`, as for all methods; each place has a model with m and S."""
        return self._mapped(_first)

    def stepped(self, step):
        return self._changed("stepped", step)

    def expecting(self, m, S):
        return self._changed("expecting", m, S)

    def log_likelihood(self):
        return float(self._sum("log_likelihood"))

    def total_weight(self):
        return float(self._sum("total_weight"))

    def diagonal(self):
        return self._sum("diagonal")

    def right(self):
        return self._sum("right")

    def multiply(self, u, which):
        return self._sum("multiply", u, np.asarray(which))

    def gram(self, q):
        return self._sum("gram", q)

    def noise(self, key, n_draws):
        """Return the key and the number of draws, from which each place draws noise."""
        return key, n_draws

    def noise_squares(self, noise):
        return self.workers.total(squares_of_noise, self.parts, *noise)

    def noise_sums(self, q, noise):
        return self.workers.total(sums_of_noise, self.parts, q, *noise)


def sums_of_noise(part, q, key, n_draws):
    """Return `SiteRows.noise_sums` of the noise for a key."""
    return part.noise_sums(q, part.noise(key, n_draws))


def squares_of_noise(part, key, n_draws):
    """Return `SiteRows.noise_squares` of the noise for a key."""
    return part.noise_squares(part.noise(key, n_draws))


def _first(part):
    model = part.engine.model
    return part.first(model.m, model.L if model.full else model.s)


def _method(part, name, *arguments):
    return getattr(part, name)(*arguments)
