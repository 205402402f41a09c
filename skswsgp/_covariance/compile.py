"""Kernel objects to flat programs that compiled code runs, and parameters back.

`compile_kernel` walks a kernel object depth first: one operation for a leaf or for the
operator that joins earlier ones, and one slot for a hyperparameter, so that
`updated_kernel` finds the same parameters in the same order.
"""

import math
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skswsgp import kernels
from skswsgp._covariance import program as codes
from skswsgp._covariance import stationary
from skswsgp._covariance.dot_product import ARC_COSINE0, ARC_COSINE1, POLYNOMIAL
from skswsgp._covariance.program import CONSTANT, POWER, SCALE, WHITE
from skswsgp._covariance.stationary import RATIONAL_QUADRATIC, RBF

MATERN = {
    0.5: stationary.MATERN12,
    1.5: stationary.MATERN32,
    2.5: stationary.MATERN52,
    math.inf: RBF,
}
ARC_COSINE = {0: ARC_COSINE0, 1: ARC_COSINE1}
COMPILABLE = (
    "a combination of ConstantKernel, WhiteKernel, RBF, Matern (nu 0.5, 1.5, 2.5 or "
    "inf), RationalQuadratic, DotProduct, Exponentiation, Sum, Product, ArcCosine "
    "(order 0 or 1) and Polynomial"
)


class CompiledKernel(NamedTuple):
    """A kernel object as a program, and what an optimiser has to respect."""

    struct: codes.Kernel
    free: np.ndarray  # (P,) bool, not "fixed"
    log_bounds: np.ndarray  # (P, 2) float64, finite
    stationary: bool  # translation invariant


class _Slot(NamedTuple):
    """A hyperparameter: consecutive entries of the vector of parameters."""

    name: str  # as in get_params of the whole kernel
    first: int
    values: np.ndarray  # (size,)
    log_bounds: np.ndarray  # (size, 2)
    free: bool


class _Operation(NamedTuple):
    """One entry of the arrays of `_covariance.Kernel`."""

    code: int
    left: int = 0
    right: int = 0
    extra: int = -1
    scale: int = 0
    n_scales: int = 0
    exponent: float = 0.0


def compile_kernel(kernel, n_features, dtype):
    """Return the `CompiledKernel` of a kernel object for X with `n_features` columns.

    Raises TypeError for what is no kernel, ValueError for one that has no program.
    """
    program = _Program(kernel)
    program.check_length_scales(n_features)
    operations, slots = program.operations, program.slots
    columns = zip(*operations, strict=True)
    arrays = {
        name: np.array(column, dtype=dtype if name == "exponent" else np.int64)
        for name, column in zip(_Operation._fields, columns, strict=True)
    }
    params = np.concatenate([slot.values for slot in slots])
    inv_scale = np.ones((len(operations), n_features), dtype=dtype)
    for row, op in zip(inv_scale, operations, strict=True):
        if op.n_scales > 0:
            row[:] = 1.0 / params[op.scale : op.scale + op.n_scales]
    return CompiledKernel(
        codes.Kernel(**arrays, params=params.astype(dtype), inv_scale=inv_scale),
        free=np.repeat([slot.free for slot in slots], [len(s.values) for s in slots]),
        log_bounds=np.concatenate([slot.log_bounds for slot in slots]),
        stationary=not any(POLYNOMIAL <= op.code <= ARC_COSINE1 for op in operations),
    )


def updated_kernel(kernel, params):
    """Return a clone of `kernel` with the parameters of a program, natural scale.

    Fixed hyperparameters keep the value of `kernel`. One length-scale for all features
    becomes a float, one for each an array.
    """
    updated = clone(kernel)
    for slot in _Program(kernel).slots:
        if slot.free:
            values = np.array(params[slot.first : slot.first + len(slot.values)], float)
            value = values if len(values) > 1 else values.item()
            updated.set_params(**{slot.name: value})
    return updated


class _Program:
    """The operations and slots of a kernel object."""

    def __init__(self, kernel):
        self.operations = []
        self.slots = []
        self._n_params = 0
        self._scaled = []  # (name of the class, number of length-scales)
        self._visit(kernel, "")

    def check_length_scales(self, n_features):
        """Raise ValueError unless they are as many as features, or one for all."""
        for name, size in self._scaled:
            if size not in (1, n_features):
                raise ValueError(
                    f"kernel {name} has {size} length-scales: expected 1 or "
                    f"n_features={n_features}; pass one number to use it for all."
                )

    def _visit(self, kernel, path):
        """Append the operations of a kernel; return the index of the last."""
        if not isinstance(kernel, sk.Kernel):
            raise TypeError(
                f"kernel {kernel!r} of type {type(kernel).__name__}: expected a kernel "
                "object of sklearn.gaussian_process.kernels or skswsgp.kernels; pass "
                "for example ConstantKernel() * RBF()."
            )
        visit = _VISITS.get(type(kernel))
        if visit is None:
            raise _refusal(kernel)
        return self._append(visit(self, kernel, path))

    def _append(self, operation):
        self.operations.append(operation)
        return len(self.operations) - 1

    def _slot(self, kernel, name, path, *, positive=False):
        """Add a hyperparameter; return the index of its first entry.

        Unless `positive`, a fixed one may be 0.
        """
        values = np.atleast_1d(np.asarray(getattr(kernel, name), dtype=float)).ravel()
        spec = getattr(kernel, f"hyperparameter_{name}")
        owner = f"{name}={getattr(kernel, name)} of kernel {type(kernel).__name__}"
        above = values > 0 if positive or not spec.fixed else values >= 0
        if len(values) == 0 or not np.all(np.isfinite(values) & above):
            advice = "pass a positive number"
            if np.all(values == 0) and not positive:
                advice += f', or {name}_bounds="fixed" to keep 0'
            raise ValueError(f"{owner}: expected positive and finite; {advice}.")
        log_bounds = np.zeros((len(values), 2))
        if not spec.fixed:
            log_bounds[:] = _log_bounds(spec.bounds, owner)
        elif np.all(values > 0):
            log_bounds[:] = np.log(values)[:, np.newaxis]
        first = self._n_params
        self._n_params += len(values)
        slot = _Slot(path + name, first, values, log_bounds, not spec.fixed)
        self.slots.append(slot)
        return first

    def _scales(self, kernel, path):
        """Add the length-scales; return the fields of the operation about them."""
        first = self._slot(kernel, "length_scale", path, positive=True)
        size = len(self.slots[-1].values)
        self._scaled.append((type(kernel).__name__, size))
        return {"scale": first, "n_scales": size}

    def _constant(self, kernel, path):
        extra = self._slot(kernel, "constant_value", path)
        return _Operation(codes.CONSTANT, extra=extra)

    def _white(self, kernel, path):
        return _Operation(codes.WHITE, extra=self._slot(kernel, "noise_level", path))

    def _rbf(self, kernel, path):
        return _Operation(RBF, **self._scales(kernel, path))

    def _matern(self, kernel, path):
        if kernel.nu not in MATERN:
            raise _refusal(kernel)
        return _Operation(MATERN[kernel.nu], **self._scales(kernel, path))

    def _rational_quadratic(self, kernel, path):
        extra = self._slot(kernel, "alpha", path, positive=True)
        scales = self._scales(kernel, path)
        return _Operation(RATIONAL_QUADRATIC, extra=extra, **scales)

    def _dot_product(self, kernel, path):
        extra = self._slot(kernel, "sigma_0", path)
        return _Operation(POLYNOMIAL, extra=extra, exponent=1.0)

    def _polynomial(self, kernel, path):
        kernel._check_shape()
        scales = self._scales(kernel, path)
        extra = self._slot(kernel, "sigma_0", path)
        degree = float(kernel.degree)
        return _Operation(POLYNOMIAL, extra=extra, exponent=degree, **scales)

    def _arc_cosine(self, kernel, path):
        kernel._check_shape()
        scales = self._scales(kernel, path)
        extra = self._slot(kernel, "sigma_0", path)
        return _Operation(ARC_COSINE[kernel.order], extra=extra, **scales)

    def _exponentiation(self, kernel, path):
        exponent = kernel.exponent
        if not isinstance(exponent, Real) or not 0 < exponent < math.inf:
            raise ValueError(
                f"exponent={exponent!r} of kernel Exponentiation: expected a positive "
                "number; pass 2 or 3."
            )
        left = self._visit(kernel.kernel, path + "kernel__")
        return _Operation(codes.POWER, left=left, exponent=float(exponent))

    def _sum(self, kernel, path):
        return self._join(codes.SUM, kernel, path)

    def _product(self, kernel, path):
        """Scale one operand when the other is a constant, else multiply."""
        for constant, other in (("k1", "k2"), ("k2", "k1")):
            factor = getattr(kernel, constant)
            if type(factor) is sk.ConstantKernel:
                left = self._visit(getattr(kernel, other), f"{path}{other}__")
                extra = self._slot(factor, "constant_value", f"{path}{constant}__")
                return _Operation(codes.SCALE, left=left, extra=extra)
        return self._join(codes.PRODUCT, kernel, path)

    def _join(self, code, kernel, path):
        left = self._visit(kernel.k1, path + "k1__")
        right = self._visit(kernel.k2, path + "k2__")
        return _Operation(code, left=left, right=right)


# Exact types: a subclass may override what the program would not see.
_VISITS = {
    sk.ConstantKernel: _Program._constant,
    sk.WhiteKernel: _Program._white,
    sk.RBF: _Program._rbf,
    sk.Matern: _Program._matern,
    sk.RationalQuadratic: _Program._rational_quadratic,
    sk.DotProduct: _Program._dot_product,
    sk.Exponentiation: _Program._exponentiation,
    sk.Sum: _Program._sum,
    sk.Product: _Program._product,
    kernels.Polynomial: _Program._polynomial,
    kernels.ArcCosine: _Program._arc_cosine,
}


def _refusal(kernel):
    return ValueError(
        f"kernel {kernel!r} cannot be compiled: expected {COMPILABLE}; build it from "
        "these, or use GaussianProcessRegressor, which takes any kernel."
    )


def _log_bounds(bounds, owner):
    """Return the logarithms of bounds (size or 1, 2), finite."""
    bounds = np.asarray(bounds, dtype=float)
    if not np.all((bounds[:, 0] >= 0) & (bounds[:, 0] <= bounds[:, 1])):
        raise ValueError(
            f"{owner} has bounds {bounds.tolist()}: expected 0 <= lower <= upper; pass "
            'a pair of numbers or "fixed".'
        )
    limits = np.finfo(np.float32)  # those of the narrowest dtype of a fit
    return np.log(np.clip(bounds, limits.tiny, limits.max).astype(float))


def is_stationary_code(code):
    """Whether operations are functions of a scaled distance."""
    return (code >= RBF) & (code <= RATIONAL_QUADRATIC)


def is_decreasing(kernel):
    """Whether no operation can grow with a distance."""
    code = kernel.code
    leaf = is_stationary_code(code) | (code == CONSTANT) | (code == WHITE)
    joined = (code >= SCALE) & ((code != POWER) | (kernel.exponent > 0))
    return bool((leaf | joined).all())


def params_in_units(kernel, spread, varying):
    """Return a kernel's parameters (P,), with length-scales as long as the default's.

    A common factor of all that are not "fixed" does that: units of X change no ratio.
    Features that are not `varying`, (D,) bool, do not count.
    """
    struct, free, *_ = compile_kernel(kernel, len(spread), np.float64)
    moves, counts = np.zeros((2, len(free)), dtype=bool)  # (P,)
    for first, size in zip(struct.scale, struct.n_scales, strict=True):
        slots = slice(first, first + size)
        moves[slots] = free[slots]
        counts[slots] = free[slots] & (varying if size > 1 else varying.any())
    params = struct.params.copy()
    if counts.any():
        usual = np.log(spread[varying]).mean() + 0.5 * math.log(varying.sum())
        shift = usual - np.log(params[counts]).mean()
        params[moves] = np.exp(np.log(params[moves]) + shift)
    return params


def free_variance(kernel, n_features):
    """Return (index, bounds) of the variance that multiplies a whole kernel, or None.

    None also where it is "fixed".
    """
    compiled = compile_kernel(kernel, n_features, np.float64)
    slot = compiled.struct.extra[-1]
    if compiled.struct.code[-1] == SCALE and compiled.free[slot]:
        return slot, np.exp(compiled.log_bounds[slot])
    return None


def first_stationary(struct):
    """Return the index of a compiled kernel's first stationary part, or None."""
    stationary = (struct.code >= RBF) & (struct.code <= RATIONAL_QUADRATIC)
    return np.flatnonzero(stationary)[0] if stationary.any() else None


def length_scales(kernel, n_features, otherwise):
    """Return the length-scales of a kernel's first stationary part, (D,)."""
    struct = compile_kernel(kernel, n_features, np.float64).struct
    first = first_stationary(struct)
    return otherwise if first is None else 1.0 / struct.inv_scale[first]
