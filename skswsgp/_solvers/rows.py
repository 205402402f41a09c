"""The rows of a fit as a solver and the law of observations read them: the contract.

A solver asks rows for the sums that `SiteRows` answer in, so rows may lie anywhere. Who
keeps rows in another way writes a class with the same members, and hands it to a solver
in place of `RowsInMemory`.
"""

from typing import NamedTuple

from skswsgp._linear.dense_sites import DenseSites
from skswsgp._linear.site_rows import SiteRows
from skswsgp._neighbors.lists import NeighborTracker
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._solvers.auto import takes_few_points


class RowsInMemory(NamedTuple):
    """Rows of a fit, all of which are in the memory of this process."""

    sample: TrainingRows  # rows in this process that tell what all rows are like

    @property
    def n_all(self):
        """The number of all rows."""
        return self.sample.n_all

    def centered(self, center):
        """Return the rows with a center (D,), which is subtracted from X."""
        return self._replace(sample=self.sample._replace(center=center))

    def sites(self, engine, kernel, settings, search):
        """Return the sites of all rows, before the first ones, as `SiteRows` are.

        `kernel` is the kernel object of the model of the engine, and `search` the
        `TrackedSearch` among its inducing points.
        """
        how = engine, kernel, settings, search, memory_budget()
        return site_rows(self.sample, *how)


def site_rows(data, engine, kernel, settings, search, memory):
    """Return the `SiteRows` of `TrainingRows`, whose A may take so many bytes.

    Many rows that all depend on few points are `DenseSites`. Other arguments are those
    of `RowsInMemory.sites`.
    """
    dense = engine.all_inducing is not None and engine.model.full
    dense = dense and data.n_rows > settings.tuning.dense_rows
    if dense and takes_few_points(settings, data.n_all, len(engine.model.Z)):
        return DenseSites.of(engine, data)
    lookup = NeighborTracker(search, data.n_rows, memory).lookup
    return SiteRows.of(engine, kernel, data, settings.likelihood_record, lookup, memory)
