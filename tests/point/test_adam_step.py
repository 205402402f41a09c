"""Steps of Adam against those of the reference."""

import numpy as np
import pytest
import reference
from helpers import dense_gradients, entry, make_problem, typed
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared

from skswsgp._adam import loops as engine
from skswsgp._compiled.pointers import address_of
from skswsgp._compiled.threads import parallel_region
from skswsgp._point import adam_step as adam
from skswsgp._point.adam_step import make_optimizer, update_parameters

pytestmark = pytest.mark.matrix
adam_step, bias_corrections = entry(adam.adam_step), entry(adam.bias_corrections)
RATE = 0.03


def ascend(gradients, dtype):
    """Return theta after steps from 0 along gradients (steps, p).

    The moments stand in row 2 of larger arrays, whose other rows must stay zero.
    """
    n = gradients.shape[1]
    moments = np.zeros((3, 2, n), dtype)
    theta = np.zeros(n)
    for t, gradient in enumerate(gradients.astype(dtype), start=1):
        scales = bias_corrections(t, RATE)
        theta += [adam_step(gradient[j], moments, 2, j, *scales) for j in range(n)]
    assert_array_equal(moments[:2], 0.0)
    return theta


@pytest.mark.parametrize("n_steps", [1, 2, 50])
def test_steps_equal_reference(n_steps, dtype, rng):
    gradients = rng.normal(size=(n_steps, 4)) * [1e-3, 1.0, 1e3, 0.0]
    expected = reference.adam(np.zeros(4), -gradients, RATE)  # it minimises
    # 1 - beta2 is 0.001, so that the bias correction loses three digits
    rtol = {"float64": 1e-11, "float32": 1e-4}[dtype.name]
    assert_allclose(ascend(gradients, dtype), expected, rtol=rtol, atol=rtol * RATE)


def test_first_step_is_the_rate(dtype):
    theta = ascend(np.array([[1e-6, -1e6]]), dtype)
    assert_allclose(theta, [RATE, -RATE], rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 10, 1000, 10**6, 10**9])
def test_bias_corrections(steps):
    expected = (
        RATE / -np.expm1(steps * np.log(0.9)),
        1 / -np.expm1(steps * np.log(0.999)),
    )
    assert_allclose(bias_corrections(steps, RATE), expected, rtol=1e-11)


def copies(model):
    """Return copies of the arrays that `update` changes, in the coordinates of Adam."""
    L = model.L.copy()
    for q in range(len(L)):
        np.fill_diagonal(L[q], np.log(np.diag(L[q])))
    return {
        "log_params": np.log(model.params),
        "log_noise": np.log(model.noise),
        "m": model.m.copy(),
        "s": np.log(model.s),
        "L": L,
        "Z": model.Z / UNIT,
    }


UNIT = np.array([0.5, 3.0])  # unit of a step of each feature of Z


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("full", [False, True], ids=["diag", "full"])
def test_update_equals_reference(full, parts, rng):
    """Each row of Z, m and S has its own count of the steps that touch it."""
    kernel = ConstantKernel(1.4) * RBF([0.8, 1.7])
    problem = make_problem(kernel, "gaussian", 2, full=full, rng=rng, M=9, n=7)
    model, batch = problem.model, problem.batch
    free = np.array([True, False, True])
    log_bounds = np.log([[0.1, 10.0], [0.1, 10.0], [1.39, 1.41]])
    optimizer = make_optimizer(model, free, log_bounds, UNIT)
    rows = engine.allocate_touched_rows(model, 4, 4, parts)
    assert rows.touched.shape == (parts, 9 // parts)
    before = copies(model)
    history = {name: [] for name in before}
    touched = []
    for start, n in [(0, 4), (4, 3), (2, 4), (0, 1), (3, 4)]:
        active = batch.active[start : start + n]
        grads = problem.local(start=start, n=n)
        gradients = dense_gradients(problem, grads, active=active)
        by_factor = gradients["L"].copy()
        gradients["s"] *= model.s
        gradients["Z"] *= UNIT
        for dense, factor in zip(gradients["L"], model.L, strict=True):
            np.fill_diagonal(dense, np.diag(dense) * np.diag(factor))
        for name, gradient in gradients.items():
            history[name].append(gradient.copy())
        touched.append(np.isin(np.arange(len(model.Z)), active))
        with parallel_region(2):
            step = 0, 0, batch.active, 0, 0, grads, RATE, 0
            address = typed(address_of(engine.move_part, model, optimizer, rows, *step))
            arguments = model, optimizer, rows, batch.active, start, n, grads, RATE
            engine.update(address, *arguments)
        assert (rows.slot == -1).all()
        assert rows.count.sum() == touched[-1].sum()
        for p in range(parts if full else 0):
            count = rows.count[p, 0]
            for r in rows.touched[p, :count]:
                expected, d_L = by_factor[:, r, : r + 1], rows.d_L[:, r, : r + 1]
                assert_allclose(d_L, expected, rtol=0, atol=1e-10)
    assert not np.all(touched)
    after = copies(model)
    for name, actual in after.items():
        by_row = name in ("m", "s", "L", "Z")
        axis = 1 if name == "L" else 0
        for r in range(actual.shape[axis] if by_row else min(1, actual.size)):
            at = (slice(None), r) if name == "L" else r if by_row else slice(None)
            steps = zip(history[name], touched, strict=True)
            used = [-g[at].ravel() for g, rows in steps if not by_row or rows[r]]
            expected = reference.adam(before[name][at].ravel(), used, RATE)
            if name == "log_params":
                expected[1] = before[name][1]
                expected[2] = np.clip(expected[2], *log_bounds[2])
                # The bounds are 0.007 from log 1.4, and a step is about 0.03 long
                assert expected[2] in log_bounds[2]
            # Where a gradient is near zero, its rounding decides on the step
            assert_allclose(actual[at].ravel(), expected, rtol=0, atol=1e-8)
    assert_allclose(model.inv_scale[0], 1 / model.params[:2], rtol=1e-15)


def test_a_step_of_a_period_is_measured_in_turns_of_all_points(rng):
    kernel = ExpSineSquared(0.9, periodicity=0.02) * RBF(1.3)
    problem = make_problem(kernel, "gaussian", 1, full=False, rng=rng, D=1)
    model, grads = problem.model, problem.local(n=1)
    free, bounds = np.ones(3, bool), np.tile([-9.0, 9.0], (3, 1))
    optimizer = make_optimizer(model, free, bounds, UNIT[:1])
    before = np.log(model.params)
    update_parameters(model, optimizer, grads, RATE)
    moved = np.abs(np.log(model.params) - before)
    assert_allclose(moved, RATE * np.array([1.0, 0.02 / np.ptp(model.Z), 1.0]))
