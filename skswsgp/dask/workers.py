"""Where blocks of rows lie: on the workers of a dask cluster, or in this process.

Both keep what tasks return where the tasks ran, and bring sums to the caller. A worker
that is lost takes its blocks with it; dask computes them anew from the collections.
"""

import warnings
from contextlib import contextmanager, suppress
from functools import reduce
from traceback import clear_frames

import numpy as np

from skswsgp._compiled.threads import PARTS, is_task_of_dask

_IS_LOST = (
    "the dask cluster lost a part of this fit: expected workers with enough memory for "
    "their blocks; take smaller blocks or more workers, and fit again."
)
_IS_APART = (
    "the client of dask closed, or lost its scheduler, before the fit had ended: "
    "expected one that stays connected; make a new Client, and fit again."
)


def find_workers():
    """Return the `ClusterWorkers` of the current client of dask, or `ThisProcess`.

    Raises RuntimeError within a task, which would wait for tasks behind it.
    """
    with suppress(ImportError, ValueError):  # no client
        from distributed import get_client

        client = get_client()
        if is_task_of_dask():
            raise RuntimeError(
                "fit of a dask collection within a task of dask: expected a call in "
                "the process of the client, or rows in memory; search without joblib's "
                "backend for dask, or give the search X.compute() and y.compute()."
            )
        return ClusterWorkers(client)
    return ThisProcess()


class ThisProcess:
    """Blocks in the memory of this process, one after the other."""

    n_workers = 1

    def load(self, lazy):
        """Compute `Delayed` objects in this process and return their results."""
        from dask import compute

        return list(compute(*lazy))  # together, for they may come from one source

    def map(self, function, parts, *arguments, each=None):
        """Return function(part, *arguments) for each part, where the part is.

        Parts have a first argument of their own where `each` holds them.
        """
        pairs = _with_first(parts, each)
        return [function(part, *first, *arguments) for part, first in pairs]

    def gather(self, parts):
        """Return the parts themselves."""
        return list(parts)

    def total(self, function, parts, *arguments, each=None):
        """Return the sum of what `map` returns."""
        return _added(self.map(function, parts, *arguments, each=each))

    @contextmanager
    def failures(self):
        """Turn the errors of a cluster into one sentence; here there are none."""
        yield


class ClusterWorkers:
    """Blocks as futures of a `distributed.Client`."""

    def __init__(self, client):
        self.client = client

    @property
    def n_workers(self):
        """The number of workers at present."""
        return len(self.client.nthreads())

    def load(self, lazy):
        """Return futures of `Delayed` objects."""
        return self.client.compute(list(lazy))

    def map(self, function, parts, *arguments, each=None):
        """Return futures of function(part, *arguments), see `ThisProcess`.

        Arguments travel once, as the result of a task, which a lost worker can repeat.
        Parts stay where they are: dask takes them for smaller than they are, and would
        move them to workers that have less to do at the moment.
        """
        for part in parts:
            if not part.done():
                self._wait_for(part)
        places = self.client.who_has(parts)
        with warnings.catch_warnings():  # it advises what a lost worker cannot repeat
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            given = self.client.submit(itself, arguments, pure=False)
            return [
                self.client.submit(
                    _call, function, part, first, given, pure=False,
                    **_preferring(places.get(part.key)),
                )
                for part, first in _with_first(parts, each)
            ]  # fmt: skip

    def gather(self, parts):
        """Return the results of futures."""
        for part in parts:
            self._wait_for(part)
        return self.client.gather(list(parts))

    def _wait_for(self, future):
        """Wait for a future; raise RuntimeError where no worker computes it."""
        from dask import config

        patience = config.get("distributed.comm.timeouts.connect")
        counts = 1, 1  # of workers, at the last two looks: a lost one may start anew
        while any(counts):
            with suppress(TimeoutError):
                future.exception(timeout=patience)
                return
            counts = counts[1], self.n_workers
        raise RuntimeError(
            f"the dask cluster has had no worker for {patience}: expected at least "
            "one; start some, call client.wait_for_workers(1), and fit again."
        )

    def total(self, function, parts, *arguments, each=None):
        """Return the sum of what `map` returns, added up in a tree."""
        parts = self.map(function, parts, *arguments, each=each)
        while len(parts) > 1:
            groups = [parts[i : i + PARTS] for i in range(0, len(parts), PARTS)]
            parts = [self.client.submit(_added, group, pure=False) for group in groups]
        return self.gather(parts)[0]

    @contextmanager
    def failures(self):
        """Turn the errors of a cluster into one sentence."""
        from distributed import KilledWorker, client
        from distributed.comm import CommClosedError
        from distributed.scheduler import NoWorkerError

        apart = CommClosedError, client.ClosedClientError
        apart += client.FutureCancelledError, client.FuturesCancelledError
        try:
            yield
        except Exception as e:
            # NoWorkerError comes where dask is told not to wait for workers
            if isinstance(e, (KilledWorker, NoWorkerError)):
                message = _IS_LOST
            elif isinstance(e, apart) or self.client.status != "running":
                message = _IS_APART
            else:
                raise
            clear_frames(e.__traceback__)  # of futures, whose failures dask would keep
            raise RuntimeError(message) from e


def _preferring(workers):
    """Return options of a task that one of some workers, if any, had best run."""
    return {"workers": workers, "allow_other_workers": True} if workers else {}


def _with_first(parts, each):
    """Return pairs of a part and the tuple of its own first argument, if any."""
    firsts = [()] * len(parts) if each is None else [(one,) for one in each]
    return zip(parts, firsts, strict=True)


def _added(parts):
    return reduce(np.add, parts)


def itself(value):
    """Return the value: as a task, it puts the value on a worker."""
    return value


def _call(function, part, first, arguments):
    return function(part, *first, *arguments)
