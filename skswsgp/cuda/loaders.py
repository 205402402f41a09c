"""Rows of training data for steps: all of them on the device, or sent when needed."""

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp._point.state import Batch


def make_loader(device, data, neighbors, H, need):
    """Return the rows of a fit: on the device if they fit, else sent in minibatches.

    They fit beside the bytes that steps `need`.
    """
    columns = data.X.shape[1] + data.y.shape[1] + 1
    row = columns * data.y.itemsize + H * np.dtype(np.int32).itemsize
    resident = data.n_rows * row <= device.budget("training rows", need)
    loader = ResidentRows if resident else StreamedRows
    with device.room_for("rows of data"):
        return loader(device, data, neighbors, H)


class ResidentRows:
    """All rows and their lists on the device; a batch sends the numbers of its rows."""

    def __init__(self, device, data, neighbors, H):
        self.device, self.data, self.neighbors = device, data, neighbors
        xp, n, dtype = device.xp, data.n_rows, data.y.dtype
        self.all = Batch(
            X=xp.empty((n, data.X.shape[1]), dtype),
            y=xp.empty((n, data.y.shape[1]), dtype),
            weight=xp.empty(n, dtype),
            active=xp.empty((n, H), np.int32),
        )
        for part in row_blocks(n):
            block = data.block(np.arange(part.start, part.stop))
            for array, on_device in zip(block, self.all, strict=False):
                on_device[part] = device.send(array)

    def batch(self, rows):
        """Return the rows with these indices."""
        with self.device.room_for("rows of data"):
            self._find_lists(rows)
            index = self.device.send(rows)
            return Batch(*(array[index] for array in self.all))

    def close(self):
        """Release the memory of the device."""
        self.all = None

    def _find_lists(self, rows):
        """Find the lists of those rows whose lists are out of date."""
        rows = rows[self.neighbors.stale(rows)]
        if len(rows):
            lists = self.neighbors.search.query(self.data.block(rows)[0])
            self.all.active[self.device.send(rows)] = self.device.send(lists)
            self.neighbors.mark_current(rows)


class StreamedRows:
    """Rows that stay on the host, perhaps in a memory map; a batch sends its own."""

    def __init__(self, device, data, neighbors, H):
        self.device, self.data, self.neighbors = device, data, neighbors

    def batch(self, rows):
        """Return the rows with these indices."""
        X, y, weight = self.data.block(rows)
        arrays = X, y, weight, self.neighbors.lookup(rows, X)
        with self.device.room_for("rows of data"):
            return Batch(*map(self.device.send, arrays))

    def close(self):
        """Hold nothing."""
