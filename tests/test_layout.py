"""The order of the packages, and limits on functions and lines of text."""

import ast
import graphlib
import re
from pathlib import Path

import skswsgp
from skswsgp._solvers.tuning import Tuning

# A package imports only packages that stand before it.
CORE = (
    "_compiled _covariance _point _neighbors _linear _rows _engine _solvers"
    " _kernel_search _posterior _law _fit _estimators"
).split()
# Parts that stand on the core, which imports none of them. `_streams` has names of old
# model files.
PARTS = "cuda streams _streams dask baselines metrics displays".split()
ORDER = CORE + PARTS
# What the core imports of a part, inside a function that is called on demand.
ON_DEMAND = {
    ("_engine.select", "cuda"),
    ("_estimators.regressor", "streams"),
    ("_estimators.classifier", "streams"),
}
# Modules and parts that a part imports, besides the core and the module `kernels`.
OF_PARTS = {
    "_estimators": {"solvers"},
    "_streams": {"streams"},
    "baselines": {"solvers"},
    "dask": set(),
    "displays": {"metrics"},
}
# Pairs in that order that do not import each other either.
INDEPENDENT = [
    {"_point", "_neighbors"},
    {"_linear", "_rows"},
    {"_engine", "_solvers"},
]
# Only the compiler of kernel objects and rows import scikit-learn below the solvers.
BELOW_SKLEARN = set(ORDER[: ORDER.index("_solvers")]) - {"_rows"} | {"cuda"}
# For each package from outside, the only files that import it.
IMPORTERS = {
    "dask": {f"dask.{name}" for name in "blocks predictions workers".split()},
    "distributed": {"dask.workers"},
    "pynndescent": {"_neighbors.search"},
    "os": {"_compiled.jit", "_compiled.threads"},  # for environment variables, forks
    "numba.cuda": {"cuda.compiler", "cuda.runtime"},
}
# Totals. To raise one takes a reason in the commit: see CONTRIBUTING.md.
MAX_ARGUMENTS = 10  # except `__init__` and compiled functions
MAX_FILES = 12  # of a package, without `__init__` and those of single models
MAX_CONSTANTS = 206  # numbers that modules name, and thresholds of `Tuning`
MAX_PARAMETERS = {"SWSGPRegressor": 22, "SWSGPClassifier": 18}
MAX_LINES = 199  # of code in a file of a baseline
# Starts of the decorators of compiled functions
COMPILERS = "njit", "kernel", "cuda.jit", "cpu_override", "intrinsic"
MAX_COLUMNS = 100  # of prose

ROOT = Path(skswsgp.__file__).parent
REPOSITORY = Path(__file__).parents[1]
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = sorted({path.parent.name for path in FILES if path.parent != ROOT})
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
PAGES += sorted((REPOSITORY / "doc").rglob("*.md"))


def name_of(path):
    """Return the package and the name of a file, as in `_engine.cpu`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


MODULES = {name_of(path) for path in FILES}


def imported(path):
    """Yield all that a file imports, as in `numba.cuda` or `skswsgp._engine.cpu.f`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(path):
    """Yield the modules of this package that a file imports, as in `_engine.cpu`."""
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "skswsgp":
            both = ".".join(parts[1:3]), parts[1]
            yield next((module for module in both if module in MODULES), parts[1])


# Pairs of a file and a module of this package that it imports
IMPORTS = [(path, module) for path in FILES for module in imported_modules(path)]


def test_order_names_all_packages():
    assert sorted(ORDER) == PACKAGES
    assert all(len(path.relative_to(ROOT).parts) <= 2 for path in FILES)


def test_packages_import_only_packages_before_them():
    for path, module in IMPORTS:
        package, other = path.parent.name, module.partition(".")[0]
        if package in ORDER and other in CORE and other != package:
            assert ORDER.index(other) < ORDER.index(package), (path, module)
            assert {other, package} not in INDEPENDENT, (path, module)


def test_nothing_imports_a_part_on_top():
    found = set()
    for path, module in IMPORTS:
        package, other = path.parent.name, module.partition(".")[0]
        if path.parent == ROOT and path.stem == "__init__":
            continue
        package = path.stem if path.parent == ROOT else package
        if other in PARTS and other != package:
            if package not in PARTS or other not in OF_PARTS.get(package, ()):
                found.add((name_of(path), other))
    assert found == ON_DEMAND


def test_rooms_import_few_public_modules():
    for path, module in IMPORTS:
        package, other = path.parent.name, module.partition(".")[0]
        if package in ORDER and not other.startswith("_") and other not in PARTS:
            allowed = {"kernels"} | OF_PARTS.get(package, set())
            assert other in allowed, (path, module)


def test_imports_on_demand_are_inside_functions():
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and path.parent.name in CORE:
                first, _, module = node.module.partition(".")
                part = module.partition(".")[0] in PARTS
                assert not (first == "skswsgp" and part), path


def test_public_kernels_import_no_other_module():
    assert not list(imported_modules(ROOT / "kernels.py"))


def test_public_solvers_import_constraints_only():
    assert set(imported_modules(ROOT / "solvers.py")) == {"_solvers.constraints"}


def test_metrics_import_formulas_and_checks_only():
    formulas = {"_compiled.special", "_law.law", "_law.student"}
    checks = {"_rows.table"}
    for path in (ROOT / "metrics").glob("*.py"):
        modules = imported_modules(path)
        others = {name for name in modules if not name.startswith("metrics")}
        assert others <= formulas | checks, path


def test_imports_within_a_package_have_no_cycle():
    for package in ORDER:
        graph = {}
        for path, module in IMPORTS:
            if path.parent.name == module.partition(".")[0] == package:
                graph.setdefault(name_of(path), []).append(module)
        list(graphlib.TopologicalSorter(graph).static_order())  # raises for a cycle


def test_few_files_import_packages_from_outside():
    for path in FILES:
        name, outside = name_of(path), [f"{module}." for module in imported(path)]
        for package, importers in IMPORTERS.items():
            if any(module.startswith(f"{package}.") for module in outside):
                assert name in importers, (path, package)
        if path.parent.name in BELOW_SKLEARN and name != "_covariance.compile":
            assert not any(module.startswith("sklearn.") for module in outside), path


def test_cuda_imports_engines_and_what_they_import():
    known = {"cuda", *ORDER[: ORDER.index("_engine") + 1]}
    for path, module in IMPORTS:
        if path.parent.name == "cuda":
            assert module.partition(".")[0] in known, (path, module)


def functions_that_are_not_compiled(path):
    """Yield the functions of a file that Numba does not compile, without `__init__`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if not any(one.startswith(COMPILERS) for one in decorators):
                yield node


def test_functions_have_few_arguments():
    for path in FILES:
        for node in functions_that_are_not_compiled(path):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in arguments)
            assert count <= MAX_ARGUMENTS, f"{path}: {node.name} has {count} arguments"


def test_packages_have_few_files():
    models = set(imported_modules(ROOT / "baselines" / "__init__.py"))
    for package in ORDER:
        files = [path for path in FILES if path.parent.name == package]
        shared = [path for path in files if name_of(path) not in models]
        count = sum(path.stem != "__init__" for path in shared)
        assert count <= MAX_FILES, f"{package} has {count} files"


def numeric_constants(path):
    """Yield the names of a module that stand for numbers."""
    allowed = ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            values = [part for part in ast.walk(node.value)]
            numbers = [v.value for v in values if isinstance(v, ast.Constant)]
            real = [isinstance(v, (int, float)) for v in numbers]
            flags = [isinstance(v, bool) for v in numbers]
            if all(isinstance(v, allowed) for v in values) and all(real):
                if not any(flags):
                    yield ast.unparse(node.targets[0])


def test_files_of_tests_differ_in_their_names():
    """Folders of tests are no packages, so pytest cannot import two of one name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)) > 50


def test_there_are_few_constants():
    constants = [name for path in FILES for name in numeric_constants(path)]
    count = len(constants) + len(Tuning._fields)
    assert count <= MAX_CONSTANTS, f"{count} constants"


def test_estimators_have_few_parameters():
    for name, most in MAX_PARAMETERS.items():
        parameters = getattr(skswsgp, name)().get_params(deep=False)
        assert len(parameters) <= most, f"{name} has {len(parameters)} parameters"


def count_lines_of_code(path):
    """Return the number of lines of a file without docstrings, comments and blanks."""
    text, left_out = path.read_text(), set()
    for node in ast.walk(ast.parse(text)):
        owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if owner and ast.get_docstring(node) is not None:
            first = node.body[0]
            left_out |= set(range(first.lineno, first.end_lineno + 1))
    lines = [line.strip() for line in text.splitlines()]
    code = [bool(line) and not line.startswith("#") for line in lines]
    return sum(code) - sum(code[number - 1] for number in left_out)


def test_files_of_baselines_are_short():
    for path in sorted((ROOT / "baselines").glob("*.py")):
        count = count_lines_of_code(path)
        assert count <= MAX_LINES, f"{path} has {count} lines of code"


def prose(page):
    """Yield (number, line) of a page without code, tables and targets of links."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, re.sub(r"\]\([^)]*\)|<?https?://\S+", "]()", line)


def test_lines_of_prose_are_short():
    for page in PAGES:
        long = [number for number, line in prose(page) if len(line) > MAX_COLUMNS]
        assert not long, f"{page.relative_to(REPOSITORY)}: lines {long}"


def test_named_examples_exist():
    for page in PAGES:
        for name in re.findall(r"examples/[\w/]+\.py", page.read_text()):
            assert (REPOSITORY / name).exists(), f"{page}: {name}"
