"""Rows of training data on the device: all of them, or the rows of the next steps.

`batch` returns rows for `CudaSteps.take` without waiting for steps that have been
queued: rows that are sent meanwhile go to other arrays.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp._point.state import Batch
from skswsgp.cuda import kernels, runtime
from skswsgp.cuda.arrays import THREADS, empty, send_array
from skswsgp.cuda.runtime import cuda

WHAT = "rows of data"


def make_batches(data, neighbors, H, stream):
    """Return the rows of a fit: on the device if they fit, else streamed to it."""
    columns = data.X.shape[1] + data.y.shape[1] + 1
    row = columns * data.y.itemsize + H * np.dtype(np.int32).itemsize
    resident = data.n_rows * row <= runtime.budget("training rows")
    make = ResidentBatches if resident else StreamedBatches
    return make(data, neighbors, H, stream)


class ResidentBatches:
    """All rows and their lists on the device; a batch sends the numbers of its rows."""

    def __init__(self, data, neighbors, H, stream):
        self.data, self.neighbors, self.stream = data, neighbors, stream
        self.buffer = DoubleBuffer(stream)
        self.all, self.chosen = allocate_batch(data, data.n_rows, H), None
        for part in row_blocks(data.n_rows):
            block = data.block(np.arange(part.start, part.stop))
            for array, on_device in zip(block, self.all, strict=False):
                on_device[part].copy_to_device(array)

    def batch(self, rows):
        """Return the rows with these indices; a later batch overwrites them."""
        n, H = len(rows), self.all.active.shape[1]
        self._find_lists(rows)
        if self.chosen is None or len(self.chosen.weight) < n:
            self.chosen = None
            self.chosen = allocate_batch(self.data, n, H)
        (index,) = self.buffer.send(rows)
        blocks = min(1024, -(-n * H // THREADS)), THREADS, self.stream
        kernels.take_rows[blocks](self.all, index, n, self.chosen)
        return self.chosen

    def close(self):
        """Release the memory of the device."""
        self.all = self.chosen = None
        self.buffer.close()

    def _find_lists(self, rows):
        """Find the lists of those rows whose lists are out of date."""
        rows = rows[self.neighbors.stale(rows)]
        if len(rows):
            lists = self.neighbors.search.query(self.data.block(rows)[0])
            index = send_array(rows, "numbers of rows")
            lists = send_array(lists, "lists of neighbours")
            blocks = min(1024, -(-lists.size // THREADS)), THREADS, self.stream
            kernels.put_lists[blocks](lists, index, self.all.active)
            self.neighbors.mark_current(rows)


class StreamedBatches:
    """Rows that stay on the host, perhaps in a memory map; a batch sends its own."""

    def __init__(self, data, neighbors, H, stream):
        self.data, self.neighbors = data, neighbors
        self.buffer = DoubleBuffer(stream)

    def batch(self, rows):
        """Return the rows with these indices, until the next batch but one."""
        X, y, weight = self.data.block(rows)
        return Batch(*self.buffer.send(X, y, weight, self.neighbors.lookup(rows, X)))

    def close(self):
        self.buffer.close()


def allocate_batch(data, n, H):
    """Allocate n rows on the device, like those of the data, with lists of length H."""
    dtype = data.y.dtype
    return Batch(
        X=empty((n, data.X.shape[1]), dtype, WHAT),
        y=empty((n, data.y.shape[1]), dtype, WHAT),
        weight=empty((n,), dtype, WHAT),
        active=empty((n, H), np.int32, WHAT),
    )


class Buffer(NamedTuple):
    """Arrays on the host and their copies on the device."""

    on_host: list  # pinned arrays of the host
    on_device: list  # arrays of the device
    sent: object  # event after the copies: the host may write to its arrays again
    used: object  # event after the work: the arrays of the device may be overwritten


class DoubleBuffer:
    """Two buffers that alternate, so that copies to one overlap with work on the other.

    Copies have a stream of their own, and wait for the work that reads the arrays which
    they overwrite. Work waits for the copies that it needs, and the host for the copies
    that were made from the buffer it is about to fill.
    """

    def __init__(self, stream):
        self.stream, self.copies = stream, cuda.stream()
        self.buffers, self.turn = [None, None], 0

    def send(self, *arrays):
        """Return copies of arrays on the device; the next call but one reuses them.

        A copy may be longer than its array: then it begins with the array.
        """
        previous, self.turn = self.turn, 1 - self.turn
        if self.buffers[previous] is not None:  # its work was queued before this call
            self.buffers[previous].used.record(self.stream)
        buffer = self._next_buffer(arrays)
        buffer.sent.synchronize()
        buffer.used.wait(self.copies)
        pairs = zip(buffer.on_host, buffer.on_device, strict=True)
        for array, (on_host, on_device) in zip(arrays, pairs, strict=True):
            n = len(array)
            on_host[:n] = array
            on_device[:n].copy_to_device(on_host[:n], stream=self.copies)
        buffer.sent.record(self.copies)
        buffer.sent.wait(self.stream)
        return buffer.on_device

    def close(self):
        self.buffers = [None, None]

    def _next_buffer(self, arrays):
        """Return the next of the two buffers, large enough for the arrays."""
        buffer, n = self.buffers[self.turn], max(len(array) for array in arrays)
        if buffer is not None and min(len(array) for array in buffer.on_host) >= n:
            return buffer
        if buffer is not None:
            buffer.sent.synchronize()
        self.buffers[self.turn] = buffer = None
        kinds = [((n, *array.shape[1:]), array.dtype) for array in arrays]
        arrays = [pinned(*k) for k in kinds], [empty(*k, WHAT) for k in kinds]
        buffer = Buffer(*arrays, cuda.event(), cuda.event())
        self.buffers[self.turn] = buffer
        return buffer


def pinned(shape, dtype):
    """Return an array in pinned memory of the host, which copies can read directly."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return runtime.allocate(
        lambda: cuda.pinned_array(shape, dtype), "rows to be sent", size
    )
