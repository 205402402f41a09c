"""Imports point down, and few files open a door to the outside."""

import ast
import graphlib
from pathlib import Path

import pytest

import skswsgp

# A package imports only packages that stand before it.
ORDER = (
    "_compiled _covariance _point _neighbors _linear _engine _solvers _initialization"
    " _estimators"
).split()
# Pairs of neighbours in that order that do not know each other either.
STRANGERS = [{"_point", "_neighbors"}, {"_engine", "_solvers"}]
# Packages that know nothing of scikit-learn, but for the compiler of its kernels.
BELOW_SKLEARN = ORDER[: ORDER.index("_solvers")]

ROOT = Path(skswsgp.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = sorted({path.parent.name for path in FILES if path.parent != ROOT})


def name_of(path):
    """Return the package and the name of a file, as in `_engine.cpu`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported(path):
    """Yield the modules that a file imports anywhere, by their full names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = ROOT.parent.joinpath(*node.module.split("."))
            for alias in node.names:
                is_module = (folder / f"{alias.name}.py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def imported_here(path):
    """Yield what a file imports of this package, as in `_engine.cpu`."""
    for module in imported(path):
        head, _, rest = module.partition(".")
        if head == "skswsgp" and rest:
            yield rest


@pytest.fixture(params=FILES, ids=name_of)
def path(request):
    return request.param


def test_the_order_names_all_packages():
    assert sorted(ORDER) == PACKAGES


def test_imports_between_packages_point_down(path):
    package = path.parent.name
    if package not in ORDER:
        return
    for module in imported_here(path):
        other = module.partition(".")[0]
        if other in ORDER and other != package:
            assert ORDER.index(other) < ORDER.index(package), module
            assert {other, package} not in STRANGERS, module


def test_private_packages_import_no_public_module_but_kernels(path):
    if path.parent.name in ORDER:
        for module in imported_here(path):
            assert module.startswith("_") or module == "kernels", module


@pytest.mark.parametrize("package", ORDER)
def test_no_circle_within_a_package(package):
    graph = {
        name_of(path): [m for m in imported_here(path) if m.startswith(package + ".")]
        for path in (ROOT / package).glob("*.py")
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises for a circle


def test_doors_to_the_outside(path):
    name, modules = name_of(path), set(imported(path))
    outside = {module.partition(".")[0] for module in modules}
    below = path.parent.name in BELOW_SKLEARN and name != "_covariance.compile"
    assert not (below and "sklearn" in outside)
    assert ("pynndescent" in outside) == (name == "_neighbors.search")
    assert "os" not in outside or name == "_compiled.jit"
    if any(module.startswith("numba.cuda") for module in modules):
        assert path.stem in ("cuda_runtime", "cuda_compiler")


def test_only_files_of_cuda_import_those_of_cuda(path):
    for module in imported_here(path):
        if ".cuda" in module and not path.stem.startswith("cuda"):
            assert name_of(path) == "_engine.select", module
