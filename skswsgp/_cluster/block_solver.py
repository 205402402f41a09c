"""The natural solver of rows that lie elsewhere."""

from skswsgp._solvers.natural import NaturalSolver


class BlockSolver(NaturalSolver):
    """Rounds of the natural solver, for which `TrainingRows` are a sample of all rows.

    A product with all rows is a task for each block, and a sum of vectors of length M.
    """

    exact_means = False  # they would take the rows of every place to every other

    def make_sites(self, kernel, memory):
        """Return the `ManySites` of all rows."""
        data, engine = self.data, self.engine
        sites = data.elsewhere.sites(engine, kernel, data.center)
        engine.model = engine.model._replace(total_weight=sites.total_weight())
        return sites
