"""Rows of training data on the device: all of them, or those of the next steps.

`batch` returns rows as steps take them, without waiting for steps that were asked for
before: these have been queued, and what is sent meanwhile goes to other arrays.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled import cuda_runtime
from skswsgp._compiled.cuda_arrays import THREADS, empty, send_array
from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.threads import row_blocks
from skswsgp._engine import cuda_kernels as kernels
from skswsgp._point.state import Batch

MEMORY = 0.5  # of the free memory, which the rows of a fit may take
WHAT = "rows of data"
ROWS_AT_ONCE = 65_536  # that are copied on the host on their way to the device


def make_batches(data, neighbors, H, work):
    """Return the rows of a fit: on the device if there is room, else as a stream.

    `neighbors` are their lists of H inducing points, `work` is the stream of steps.
    """
    D, itemsize = data.X.shape[1], data.y.itemsize
    row = (D + data.y.shape[1] + 1) * itemsize + H * np.dtype(np.int32).itemsize
    resident = data.n_rows * row <= MEMORY * cuda_runtime.free_memory()
    return (ResidentBatches if resident else StreamedBatches)(data, neighbors, H, work)


class ResidentBatches:
    """All rows and their lists on the device; a block of steps sends their numbers."""

    def __init__(self, data, neighbors, H, work):
        self.data, self.neighbors, self.work = data, neighbors, work
        self.ferry = DoubleBuffer(work)
        self.all, self.some = make_batch(data, data.n_rows, H), None
        for part in row_blocks(data.n_rows, ROWS_AT_ONCE):
            here = data.block(np.arange(part.start, part.stop))
            for array, there in zip(here, self.all, strict=False):
                there[part].copy_to_device(array)

    def batch(self, rows):
        """Return these rows of the data; the next call overwrites them, in turn."""
        n, H = len(rows), self.all.active.shape[1]
        self._find_lists(rows)
        if self.some is None or len(self.some.weight) < n:
            self.some = None
            self.some = make_batch(self.data, n, H)
        (index,) = self.ferry.send(rows)
        blocks = min(1024, -(-n * H // THREADS))
        launch = kernels.take_rows[blocks, THREADS, self.work]
        launch(self.all, index, n, self.some)
        return self.some

    def close(self):
        """Give the memory back."""
        self.all = self.some = None
        self.ferry.close()

    def _find_lists(self, rows):
        """Find the lists of those rows whose lists are out of date."""
        rows = rows[self.neighbors.stale(rows)]
        if len(rows):
            lists = self.neighbors.search.query(self.data.block(rows)[0])
            index = send_array(rows, "numbers of rows")
            lists = send_array(lists, "lists of neighbours")
            blocks = min(1024, -(-lists.size // THREADS))
            launch = kernels.put_lists[blocks, THREADS, self.work]
            launch(lists, index, self.all.active)
            self.neighbors.mark_current(rows)


class StreamedBatches:
    """Rows that stay on the host, in a memory map perhaps, but for those of a block."""

    def __init__(self, data, neighbors, H, work):
        self.data, self.neighbors, self.ferry = data, neighbors, DoubleBuffer(work)

    def batch(self, rows):
        """Return these rows of the data, on the device until the call after next."""
        X, y, weight = self.data.block(rows)
        return Batch(*self.ferry.send(X, y, weight, self.neighbors.lookup(rows, X)))

    def close(self):
        """Give the memory back."""
        self.ferry.close()


def make_batch(data, n, H):
    """Allocate n rows like those of the data, with lists of H, on the device."""
    dtype = data.y.dtype
    return Batch(
        X=empty((n, data.X.shape[1]), dtype, WHAT),
        y=empty((n, data.y.shape[1]), dtype, WHAT),
        weight=empty((n,), dtype, WHAT),
        active=empty((n, H), np.int32, WHAT),
    )


class Buffer(NamedTuple):
    """Arrays of one crossing."""

    here: list  # pinned, on the host
    there: list  # on the device
    sent: object  # event: the host may write to its arrays
    used: object  # event: the device has done what was asked of its arrays


class DoubleBuffer:
    """Arrays that cross over to the device while it works on those before them.

    Two sets of arrays are taken in turns. Copies have a stream of their own; that of
    the `work` waits for the copy that it needs, a copy for the work on what it
    overwrites, and the host for the last copy but one.
    """

    def __init__(self, work):
        self.work, self.copies = work, cuda.stream()
        self.sides, self.turn = [None, None], 0

    def send(self, *arrays):
        """Return arrays on the device that begin with these, until the next but one."""
        before, self.turn = self.turn, 1 - self.turn
        if self.sides[before] is not None:  # its work was asked for before this call
            self.sides[before].used.record(self.work)
        side = self._side(arrays)
        side.sent.synchronize()
        side.used.wait(self.copies)
        for array, here, there in zip(arrays, side.here, side.there, strict=True):
            n = len(array)
            here[:n] = array
            there[:n].copy_to_device(here[:n], stream=self.copies)
        side.sent.record(self.copies)
        side.sent.wait(self.work)
        return side.there

    def close(self):
        """Give the memory back."""
        self.sides = [None, None]

    def _side(self, arrays):
        """Return the set whose turn it is, with room for the arrays."""
        side, n = self.sides[self.turn], max(len(array) for array in arrays)
        if side is not None and min(len(here) for here in side.here) >= n:
            return side
        if side is not None:
            side.sent.synchronize()
        self.sides[self.turn] = side = None
        kinds = [((n, *array.shape[1:]), array.dtype) for array in arrays]
        here, there = [pinned(*k) for k in kinds], [empty(*k, WHAT) for k in kinds]
        side = self.sides[self.turn] = Buffer(here, there, cuda.event(), cuda.event())
        return side


def pinned(shape, dtype):
    """Return an array on the host that copies need not wait for."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return cuda_runtime.allocate(
        lambda: cuda.pinned_array(shape, dtype), "rows on their way", size
    )
