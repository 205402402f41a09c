"""A device of NumPy that counts what Python asks of a GPU."""

from collections import Counter
from typing import ClassVar

import numpy as np
from numpy_device import NumpyDevice


def plain(value):
    """Return arguments whose arrays are not counted any more."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, tuple):
        values = map(plain, value)
        return value._make(values) if hasattr(value, "_make") else tuple(values)
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


def arrays_of(value):
    """Return how many arrays there are among arguments."""
    if isinstance(value, tuple):
        return sum(map(arrays_of, value))
    return int(isinstance(value, np.ndarray))


class CountedArray(np.ndarray):
    """An array that counts the calls, products, gathers and copies it takes part in."""

    counts: ClassVar = Counter()

    def __array_finalize__(self, source):
        """Do nothing; the counts are those of the class."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return called(getattr(ufunc, method), *inputs, **options)

    def __array_function__(self, function, kinds, arguments, options):
        return called(function, *arguments, **options)

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, np.ndarray) for part in parts):
            return called(np.ndarray.__getitem__, self, plain(key))
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        called(np.ndarray.__setitem__, self, plain(key), value)


for name in "astype copy fill sort argsort".split():
    method = getattr(np.ndarray, name)
    setattr(
        CountedArray,
        name,
        lambda self, *given, method=method, **options: called(
            method, self, *given, **options
        ),
    )


def called(function, *arguments, **options):
    """Return the result of a function, and count the call."""
    CountedArray.counts["calls"] += 1
    options = {name: plain(value) for name, value in options.items()}
    result = function(*plain(arguments), **options)
    return counted(result)


def counted(value):
    """Return an array that counts, or a value that is none."""
    return value.view(CountedArray) if isinstance(value, np.ndarray) else value


class CountedNamespace:
    """NumPy, the calls of whose functions are counted."""

    def __getattr__(self, name):
        value = getattr(np, name)
        if isinstance(value, type) or not callable(value):
            return value
        return lambda *given, **options: called(value, *given, **options)


class CountingDevice(NumpyDevice):
    """A device of NumPy that counts what a step asks of it.

    `counts` has launches, the arrays among their arguments that Python looks at, calls
    of the namespace and of libraries, and numbers that Python waits for.
    """

    xp = CountedNamespace()
    counts = CountedArray.counts

    def send(self, array):
        self.counts["sent"] += 1
        return counted(super().send(plain(array)))

    def fetch(self, array):
        self.counts["fetched"] += 1
        return super().fetch(plain(array))

    def prepare(self, body, n, *arguments):
        self.counts["arrays"] += arrays_of(arguments)
        launch = super().prepare(body, n, *plain(arguments))

        def noted():
            if n:
                self.counts["launches"] += 1
                launch()

        return noted

    def cholesky(self, A, info):
        called(super().cholesky, A, info)

    def invert(self, L, lower):
        called(super().invert, L, lower)

    def count(self, call):
        """Return how often a call has asked this device for what, by name."""
        self.counts.clear()
        call()
        return dict(self.counts)
