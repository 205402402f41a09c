"""Kernel objects compiled to programs, parameters set back, properties of kernels.

`TABLE` has a row for each kernel that compiles. A walk through a kernel object, depth
first, makes an operation of each leaf and combination, and a slot of the parameter
vector of each hyperparameter.
"""

import math
from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skswsgp._covariance import dot_product, program, stationary
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial


class Leaf(NamedTuple):
    """A row of TABLE: one kernel class, or one variant of it, and its properties.

    Sums, products and powers are stationary or decreasing where all their leaves are.
    """

    code: int
    kernel: type  # exactly this class: a subclass may override anything
    variant: tuple = ()  # (attribute, value) of the objects that this row is for
    parameters: tuple = ("length_scale",)  # hyperparameters, in the order of theta
    stationary: bool = True  # k(x, z) depends on x - z only
    decreasing: bool = True  # k(x, z) never grows with a scaled distance
    scale: str = "length_scale"  # the hyperparameter that divides the columns, if any

    def __str__(self):
        """Return the expression that makes a kernel object of this row."""
        argument = "{}={}".format(*self.variant) if self.variant else ""
        return f"{self.kernel.__name__}({argument})"

    def matches(self, kernel):
        """Return whether a kernel object is of this class and variant."""
        if type(kernel) is not self.kernel:
            return False
        return not self.variant or getattr(kernel, self.variant[0]) == self.variant[1]


BIAS, SCALED = ("sigma_0",), ("length_scale", "sigma_0")
SHAPED, WAVE = ("alpha", "length_scale"), ("length_scale", "periodicity")
TABLE = (  # code, kernel, variant, parameters, stationary, decreasing, scale
    Leaf(program.CONSTANT, sk.ConstantKernel, parameters=("constant_value",)),
    Leaf(program.WHITE, sk.WhiteKernel, parameters=("noise_level",)),
    Leaf(stationary.RBF, sk.RBF),
    Leaf(stationary.MATERN12, sk.Matern, ("nu", 0.5)),
    Leaf(stationary.MATERN32, sk.Matern, ("nu", 1.5)),
    Leaf(stationary.MATERN52, sk.Matern, ("nu", 2.5)),
    Leaf(stationary.RBF, sk.Matern, ("nu", math.inf)),
    Leaf(stationary.RATIONAL_QUADRATIC, sk.RationalQuadratic, (), SHAPED),
    Leaf(stationary.PERIODIC, sk.ExpSineSquared, (), WAVE, True, False, "periodicity"),
    Leaf(dot_product.POLYNOMIAL, sk.DotProduct, (), BIAS, False, False),
    Leaf(dot_product.POLYNOMIAL, Polynomial, (), SCALED, False, False),
    Leaf(dot_product.ARC_COSINE0, ArcCosine, ("order", 0), SCALED, False, False),
    Leaf(dot_product.ARC_COSINE1, ArcCosine, ("order", 1), SCALED, False, False),
)
LEAVES = {leaf.code: leaf for leaf in TABLE}
MAY_BE_ZERO = ("constant_value", "noise_level", "sigma_0")  # if they are "fixed"


class CompiledKernel(NamedTuple):
    """A kernel object as a program, and the constraints on its parameters."""

    struct: program.Kernel
    free: np.ndarray  # (P,) bool, whether a parameter is not "fixed"
    log_bounds: np.ndarray  # (P, 2) float64, finite
    stationary: bool  # translation invariant


class _Slot(NamedTuple):
    """A hyperparameter: consecutive entries of the vector of parameters."""

    name: str  # key in `get_params` of the whole kernel
    first: int
    values: np.ndarray  # (size,)
    log_bounds: np.ndarray  # (size, 2)
    free: bool


class _Operation(NamedTuple):
    """One entry of each array of `program.Kernel` but `params`."""

    code: int
    left: int = 0
    right: int = 0
    extra: int = -1
    slot: np.ndarray | int = -1  # (D,), or one number for all columns
    exponent: float = 1.0
    inv_scale: np.ndarray | float = 1.0  # (D,) without parameters, or one number


def compile_kernel(kernel, n_features, dtype):
    """Return the `CompiledKernel` of a kernel object for X (n, `n_features`)."""
    walk = _Walk(kernel, n_features)
    operations, slots = walk.operations, walk.slots
    arrays = dict(zip(_Operation._fields, zip(*operations, strict=True), strict=True))
    for name, column in arrays.items():
        if name in ("slot", "inv_scale"):
            column = [np.broadcast_to(one, n_features) for one in column]
        real = name in ("exponent", "inv_scale")
        arrays[name] = np.array(column, dtype=dtype if real else np.int64)
    params = np.concatenate([slot.values for slot in slots])
    divided = arrays["slot"] >= 0
    arrays["inv_scale"][divided] = 1.0 / params[arrays["slot"][divided]]
    struct = program.Kernel(**arrays, params=params.astype(dtype))
    return CompiledKernel(
        struct,
        free=np.repeat([slot.free for slot in slots], [len(s.values) for s in slots]),
        log_bounds=np.concatenate([slot.log_bounds for slot in slots]),
        stationary=all(leaf.stationary for leaf in _leaves(struct)),
    )


def updated_kernel(kernel, params):
    """Return a clone of `kernel` with the parameters of its program, natural scale.

    Fixed hyperparameters keep the value of `kernel`. A length-scale that all features
    share becomes a float, length-scales of single features an array.
    """
    updated = clone(kernel)
    for slot in _Walk(kernel, n_features=None).slots:
        if slot.free:
            values = np.array(params[slot.first : slot.first + len(slot.values)], float)
            value = values if len(values) > 1 else values.item()
            updated.set_params(**{slot.name: value})
    return updated


class _Walk:
    """A walk through a kernel object, which gives its operations and slots."""

    def __init__(self, kernel, n_features):
        self.operations, self.slots, self._n_params = [], [], 0
        self._n_features = n_features
        # the columns that the present kernel reads; None where only slots are needed
        self._columns = None if n_features is None else np.arange(n_features)
        self._visit(kernel, "")

    def _visit(self, kernel, path):
        """Append the operations of a kernel; return the index of the last."""
        if not isinstance(kernel, sk.Kernel):
            raise TypeError(
                f"kernel {kernel!r} of type {type(kernel).__name__}: expected a kernel "
                "object of sklearn.gaussian_process.kernels or skswsgp.kernels; pass "
                "for example ConstantKernel() * RBF()."
            )
        if type(kernel) is OnColumns:
            return self._visit_columns(kernel, path)
        visits = {sk.Exponentiation: self._power, sk.Product: self._product}
        visits[sk.Sum] = partial(self._join, program.SUM)
        self.operations.append(visits.get(type(kernel), self._leaf)(kernel, path))
        return len(self.operations) - 1

    def _visit_columns(self, kernel, path):
        """Append the operations of a kernel on some columns, which adds none itself."""
        before = self._columns
        if before is not None:
            self._columns = before[kernel._positions(len(before))]
        last = self._visit(kernel.kernel, path + "kernel__")
        self._columns = before
        return last

    def _row(self, values, outside):
        """Return values of the columns that are read in a row (D,) of all columns."""
        if self._columns is None:
            return outside
        row = np.full(self._n_features, outside)
        row[self._columns] = values
        return row

    def _slot(self, kernel, name, path):
        """Add a hyperparameter; return the index of its first entry."""
        values = np.atleast_1d(np.asarray(getattr(kernel, name), dtype=float)).ravel()
        spec = getattr(kernel, f"hyperparameter_{name}")
        owner = f"{name}={getattr(kernel, name)} of kernel {type(kernel).__name__}"
        may_be_zero = name in MAY_BE_ZERO
        above = values >= 0 if spec.fixed and may_be_zero else values > 0
        if len(values) == 0 or not np.all(np.isfinite(values) & above):
            advice = "pass a positive number"
            if np.all(values == 0) and may_be_zero:
                advice += f', or {name}_bounds="fixed" to keep 0'
            raise ValueError(f"{owner}: expected positive and finite; {advice}.")
        log_bounds = np.zeros((len(values), 2))
        if not spec.fixed:
            log_bounds[:] = _log_bounds(spec.bounds, owner)
        elif np.all(values > 0):
            log_bounds[:] = np.log(values)[:, np.newaxis]
        first, self._n_params = self._n_params, self._n_params + len(values)
        slot = _Slot(path + name, first, values, log_bounds, not spec.fixed)
        self.slots.append(slot)
        return first

    def _leaf(self, kernel, path):
        """Return the operation of a kernel of TABLE, and add its slots."""
        if isinstance(kernel, Polynomial | ArcCosine):
            kernel._check_shape()
        leaf = next((leaf for leaf in TABLE if leaf.matches(kernel)), None)
        if leaf is None:
            raise ValueError(
                f"kernel {kernel!r} cannot be compiled: expected sums, products and "
                f"powers of {', '.join(map(str, TABLE))}; build it from these, or use "
                "GaussianProcessRegressor, which takes any kernel."
            )
        fields = {"exponent": float(getattr(kernel, "degree", 1.0))}
        fields["inv_scale"] = self._row(1.0, 0.0)
        for name in leaf.parameters:
            first = self._slot(kernel, name, path)
            if name == leaf.scale:
                size = len(self.slots[-1].values)
                if self._columns is not None and size not in (1, len(self._columns)):
                    raise ValueError(
                        f"kernel {type(kernel).__name__} has {size} length-scales: "
                        f"expected 1 or n_features={len(self._columns)}; pass one "
                        "number to use it for all."
                    )
                each = np.arange(size) if size > 1 else 0
                fields["slot"] = self._row(first + each, -1)
            else:
                fields["extra"] = first
        return _Operation(leaf.code, **fields)

    def _power(self, kernel, path):
        exponent = kernel.exponent
        if not isinstance(exponent, Real) or not 0 < exponent < math.inf:
            raise ValueError(
                f"exponent={exponent!r} of kernel Exponentiation: expected a positive "
                "number; pass 2 or 3."
            )
        first = len(self.operations)
        left = self._visit(kernel.kernel, path + "kernel__")
        signed = {operation.code for operation in self.operations[first:]}
        if exponent != int(exponent) and dot_product.POLYNOMIAL in signed:
            raise ValueError(
                f"exponent={exponent!r} of kernel Exponentiation around DotProduct or "
                "Polynomial, which may be negative: expected an integer; pass 2 or 3."
            )
        return _Operation(program.POWER, left=left, exponent=float(exponent))

    def _product(self, kernel, path):
        """Return SCALE of an operand if the other is a constant, else PRODUCT."""
        for constant, other in (("k1", "k2"), ("k2", "k1")):
            factor = getattr(kernel, constant)
            if type(factor) is sk.ConstantKernel:
                left = self._visit(getattr(kernel, other), f"{path}{other}__")
                extra = self._slot(factor, "constant_value", f"{path}{constant}__")
                return _Operation(program.SCALE, left=left, extra=extra)
        return self._join(program.PRODUCT, kernel, path)

    def _join(self, code, kernel, path):
        left = self._visit(kernel.k1, path + "k1__")
        right = self._visit(kernel.k2, path + "k2__")
        return _Operation(code, left=left, right=right)


def _log_bounds(bounds, owner):
    """Return the logarithms of bounds, (size, 2) or (1, 2), made finite."""
    bounds = np.asarray(bounds, dtype=float)
    if not np.all((bounds[:, 0] >= 0) & (bounds[:, 0] <= bounds[:, 1])):
        raise ValueError(
            f"{owner} has bounds {bounds.tolist()}: expected 0 <= lower <= upper; pass "
            'a pair of numbers or "fixed".'
        )
    limits = np.finfo(np.float32)  # the narrowest dtype of a fit
    return np.log(np.clip(bounds, limits.tiny, limits.max).astype(float))


def _leaves(struct):
    """Return the rows of TABLE of a compiled kernel's leaves."""
    return [LEAVES[code] for code in struct.code if code in LEAVES]


def is_decreasing(struct):
    """Return whether no leaf of a compiled kernel can grow with a distance."""
    return all(leaf.decreasing for leaf in _leaves(struct))


def distance_leaves(struct):
    """Return the indices of a compiled kernel's decreasing functions of a distance.

    Their scaled distances say which points are near, unlike distances in periods.
    """
    distance = struct.code >= stationary.FIRST_DISTANCE
    distance &= struct.code < dot_product.FIRST_DOT_PRODUCT
    return np.flatnonzero(distance & (struct.code != stationary.PERIODIC))


def constant_slots(struct):
    """Return the indices of the parameters that are constants or constant factors."""
    return struct.extra[np.isin(struct.code, (program.CONSTANT, program.SCALE))]


def params_in_units(kernel, spread, varying):
    """Return the parameters (P,) of a kernel, with length-scales in the units of X.

    One factor takes the geometric mean of those that are not "fixed" to that of default
    kernels on the same columns. Features that are not `varying`, (D,) bool, do not
    count. A period is no length-scale, and stays.
    """
    struct, free, *_ = compile_kernel(kernel, len(spread), np.float64)
    moves, shifts = np.zeros(len(free), dtype=bool), []
    for code, slot in zip(struct.code, struct.slot, strict=True):
        if code == stationary.PERIODIC:
            continue
        moves[slot[slot >= 0]] = True
        counted = (slot >= 0) & varying
        for own in np.unique(slot[counted]):
            if free[own]:
                usual = np.log(spread[slot == own][varying[slot == own]]).mean()
                usual += 0.5 * math.log(counted.sum())
                shifts.append(usual - math.log(struct.params[own]))
    params, moves = struct.params.copy(), moves & free
    if shifts:
        params[moves] = np.exp(np.log(params[moves]) + np.mean(shifts))
    return params


def free_variance(kernel, n_features):
    """Return (index, bounds) of the free variance that multiplies a kernel, or None."""
    compiled = compile_kernel(kernel, n_features, np.float64)
    slot = compiled.struct.extra[-1]
    if compiled.struct.code[-1] == program.SCALE and compiled.free[slot]:
        return slot, np.exp(compiled.log_bounds[slot])
    return None


def length_scales(kernel, n_features, otherwise):
    """Return the length-scale of each column (D,) in the first distance kernel of it.

    Columns that no such kernel reads get those of `otherwise` (D,).
    """
    struct = compile_kernel(kernel, n_features, np.float64).struct
    lengths = np.zeros(n_features)
    for inv_scale in struct.inv_scale[distance_leaves(struct)[::-1]]:
        lengths[inv_scale > 0.0] = 1.0 / inv_scale[inv_scale > 0.0]
    return lengths if lengths.all() else np.where(lengths > 0.0, lengths, otherwise)


def count_periodic_columns(struct):
    """Return how many columns a leaf ExpSineSquared of a kernel reads at most.

    It is a covariance on one only: in two columns all points at the distance of a
    period from one would be equal to it, and so to each other.
    """
    periodic = struct.slot[struct.code == stationary.PERIODIC]
    return np.sum(periodic >= 0, axis=1).max(initial=0)


def log_units(struct, points):
    """Return the units (P,) in which steps of the log parameters are measured.

    They are 1, but for a period 1 over the number of periods among points (n, D): a
    larger step would turn the phases of far points at random.
    """
    units = np.ones(len(struct.params))
    for slot in struct.slot[struct.code == stationary.PERIODIC]:
        own = slot[slot >= 0]
        extent = np.linalg.norm(np.ptp(points[:, slot >= 0], axis=0).astype(float))
        units[own] = 1.0 / max(1.0, extent / struct.params[own[0]])
    return units


def inverse_lengths(struct):
    """Return one over the shortest lengths (D,) in which a compiled kernel changes.

    They are 0 for columns that it does not read. ExpSineSquared changes within one
    radian of its period, or within `length_scale` radians where these are fewer.
    """
    rates = struct.inv_scale.astype(np.float64)
    rates[struct.code < stationary.FIRST_DISTANCE] = 0.0
    periodic = struct.code == stationary.PERIODIC
    radians = np.minimum(struct.params[struct.extra[periodic]], 1.0)
    rates[periodic] *= 2.0 * math.pi / radians[:, np.newaxis]
    return rates.max(axis=0)
