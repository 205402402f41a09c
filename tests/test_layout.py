"""Imports point down, and only the rooms named here open a door to the outside."""

import ast
from pathlib import Path

import pytest

import skswsgp

FLOORS = [
    "_covariance _stationary _likelihoods _linalg _tiles _lanes _cuda _triangle_cuda"
    " _state _jit kernels",
    "_factor _variational _point _shared _kriging _adam",
    "_engine_cpu _engine_cuda _steps_cpu _evaluation_cpu _kriging_cpu _kriging_cuda"
    " _nearest _scan _partition _listed _search_cuda _rows_cuda",
    "_model _training _neighbors _inducing _defaults _program _engine _device"
    " _device_arrays _device_data _device_search _device_work _device_kriging"
    " _device_rows"
    " _kriging_engine _local _learning _conjugate _chain _divergences _rows _natural"
    " _alternating _held _refine _few _start _validation",
    "_base _callbacks baselines metrics",
    "_regressor _classifier",
    "__init__",
]
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names.split()}
FILES = sorted(Path(skswsgp.__file__).parent.glob("*.py"))


def imported(path):
    """Modules that a file imports anywhere, by their first two names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "skswsgp":
                names = [alias.name for alias in node.names]
                yield from (f"skswsgp.{n}" for n in names if n != "__version__")
            else:
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_point_down(path):
    for module in imported(path):
        package, _, name = module.partition(".")
        if package == "skswsgp":
            assert FLOOR[name] <= FLOOR[path.stem], module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_doors_to_the_outside(path):
    packages = {module.partition(".")[0] for module in imported(path)}
    if FLOOR[path.stem] < 3 and path.stem != "kernels":
        assert "sklearn" not in packages
    assert ("pynndescent" in packages) == (path.stem == "_neighbors")
    assert "os" not in packages or path.stem == "_jit"
    if any(module.startswith("numba.cuda") for module in imported(path)):
        assert path.stem == "_cuda"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_room_has_at_most_500_lines(path):
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "doc/development.md"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_room_is_on_the_plan(path, page):
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    assert path.stem == "__init__" or f"`{path.stem}`" in text
