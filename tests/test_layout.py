"""The order of the packages, and limits on functions and lines of text."""

import ast
import graphlib
import re
from pathlib import Path

import skswsgp
from skswsgp._solvers.tuning import Tuning

# The rooms of the core, packages and modules. A room imports only rooms before it.
CORE = (
    "_version kernels _compiled _covariance _point _neighbors _linear _rows _engine"
    " _solvers solvers _kernel_search _posterior _law _fit _estimators"
).split()
# Parts that stand on the core, which imports none of them.
PARTS = "_adam cuda noise streams dask explain joint baselines metrics displays compile"
PARTS = PARTS.split()
ORDER = CORE + PARTS
# What the core imports of a part, inside a function that is called on demand.
ON_DEMAND = {
    ("_engine.select", "cuda"),
    ("_fit.solve", "joint"),
    ("_kernel_search.start", "noise"),
    ("_fit.solve", "noise"),
    ("solvers", "_adam"),
    ("_estimators.latent", "explain"),
    ("_estimators.latent", "joint"),
    ("_estimators.observations", "noise"),
    ("_estimators.regressor", "joint"),
    ("_estimators.regressor", "noise"),
    ("_estimators.regressor", "streams"),
    ("_estimators.classifier", "streams"),
}
# The parts that a part imports
OF_PARTS = {"displays": {"metrics"}, "cuda": {"_adam"}, "dask": {"_adam"}}
OF_PARTS["baselines"] = {"_adam", "explain", "joint"}
# Pairs in that order that do not import each other either.
INDEPENDENT = [
    {"_point", "_neighbors"},
    {"_linear", "_rows"},
    {"_engine", "_solvers"},
]
# Only the compiler of kernel objects and rows import scikit-learn below the solvers.
BELOW_SKLEARN = set(ORDER[: ORDER.index("_solvers")]) - {"_rows", "kernels"}
BELOW_SKLEARN |= {"_adam", "cuda"}
# For each package from outside, the only files that import it.
IMPORTERS = {
    "dask": {f"dask.{name}" for name in "blocks predictions workers".split()},
    "distributed": {"dask.workers"},
    "pynndescent": {"_neighbors.search"},
    "os": {"_compiled.jit", "_compiled.threads"},  # for environment variables, forks
    "numba.cuda": {"cuda.compiler"},
    "cupy": {"cuda.device"},
    "cupyx": {"cuda.device"},
}
# Totals. They may fall, and are not raised: see CONTRIBUTING.md.
MAX_LINES_OF_CORE = 11_906  # of code
MAX_LINES_OF_FUNCTION = 45  # of code
MAX_ARGUMENTS = 10  # except `__init__` and compiled functions
MANY_ARGUMENTS, MAX_WITH_MANY = 6, 33  # how many functions may have more
MAX_FILES = 12  # of a package, without `__init__` and those of single models
MAX_NUMBERS = 234  # that modules name, also in tuples, and thresholds of `Tuning`
MAX_MIXINS = 4  # of ours in an estimator
MAX_HOPS = 25  # of the life of a row in `fit` and `predict`
MAX_PARAMETERS = {"SWSGPRegressor": 22, "SWSGPClassifier": 18}
MAX_LINES = 199  # of code in a file of a baseline
# Starts of the decorators of compiled functions
COMPILERS = "njit", "body", "cuda.jit", "intrinsic"
MAX_COLUMNS = 100  # of prose

ROOT = Path(skswsgp.__file__).parent
REPOSITORY = Path(__file__).parents[1]
FILES = sorted(ROOT.rglob("*.py"))
ROOMS = [path for path in FILES if path != ROOT / "__init__.py"]
ARCHITECTURE = REPOSITORY / "doc" / "developer" / "architecture.md"
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
PAGES += sorted((REPOSITORY / "doc").rglob("*.md"))


def name_of(path):
    """Return the package and the name of a file, as in `_engine.cpu`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room_of(path):
    """Return the package or the module at the root that a file belongs to."""
    return name_of(path).partition(".")[0]


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


# Pairs of a file and a module of another room that it imports, anywhere in its text
IMPORTS = [(path, module) for path in ROOMS for module in imported_modules(path)]
ACROSS = [
    (path, room_of(path), module.partition(".")[0])
    for path, module in IMPORTS
    if module.partition(".")[0] != room_of(path)
]


def test_order_names_all_rooms():
    assert sorted(ORDER) == sorted({room_of(path) for path in ROOMS})
    assert all(len(path.relative_to(ROOT).parts) <= 2 for path in FILES)


def test_rooms_import_only_rooms_before_them():
    for path, room, other in ACROSS:
        if other in CORE:
            assert ORDER.index(other) < ORDER.index(room), (path, other)
            assert {other, room} not in INDEPENDENT, (path, other)


def test_nothing_imports_a_part_on_top():
    found = {(path, room, other) for path, room, other in ACROSS if other in PARTS}
    above = {one for one in found if one[2] in OF_PARTS.get(one[1], ())}
    assert {(name_of(path), other) for path, _, other in found - above} == ON_DEMAND


def test_imports_on_demand_are_inside_functions():
    for path in ROOMS:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and room_of(path) in CORE:
                first, _, module = node.module.partition(".")
                part = module.partition(".")[0] in PARTS
                assert not (first == "skswsgp" and part), path


def test_public_kernels_import_no_other_module():
    assert not list(imported_modules(ROOT / "kernels.py"))


def test_metrics_import_formulas_and_checks_only():
    formulas = {"_compiled.special", "_law.law", "_law.student"}
    checks = {"_rows.checks", "_rows.table"}
    for path in (ROOT / "metrics").glob("*.py"):
        modules = imported_modules(path)
        others = {name for name in modules if not name.startswith("metrics")}
        assert others <= formulas | checks, path


def test_imports_within_a_package_have_no_cycle():
    for package in ORDER:
        graph = {}
        for path, module in IMPORTS:
            if room_of(path) == module.partition(".")[0] == package:
                graph.setdefault(name_of(path), []).append(module)
        list(graphlib.TopologicalSorter(graph).static_order())  # raises for a cycle


def test_the_page_of_the_architecture_draws_all_rooms_in_their_order():
    drawing = ARCHITECTURE.read_text().split("```")[1]
    rooms = re.findall(r"(?m)^   (\w+) ", drawing)
    assert rooms[-len(CORE) :] == CORE[::-1]
    assert sorted(rooms[: -len(CORE)]) == sorted(PARTS)


def test_the_page_of_the_architecture_names_what_there_is():
    text = ARCHITECTURE.read_text()
    for named in re.findall(r"`(\w+/\w+)`", text):
        assert named.replace("/", ".") in MODULES, named
    hops = re.findall(r"(?m)^ +(\d+)  (\w+/\w+) +(\w+)  ", text)
    assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
    assert 10 < len(hops) <= MAX_HOPS
    for _, file, name in hops:
        tree = ast.parse((ROOT / f"{file}.py").read_text())
        defined = [getattr(node, "name", None) for node in ast.walk(tree)]
        assert name in defined, (file, name)


def test_few_files_import_packages_from_outside():
    for path in FILES:
        name, outside = name_of(path), [f"{module}." for module in imported(path)]
        for package, importers in IMPORTERS.items():
            if any(module.startswith(f"{package}.") for module in outside):
                assert name in importers, (path, package)
        if room_of(path) in BELOW_SKLEARN and name != "_covariance.compile":
            assert not any(module.startswith("sklearn.") for module in outside), path


def test_cuda_imports_engines_steps_and_what_engines_import():
    known = {"_adam", *ORDER[: ORDER.index("_engine") + 1]}
    for path, room, other in ACROSS:
        assert room != "cuda" or other in known, (path, other)


def is_compiled(function):
    """Return whether Numba compiles a function, given by its node."""
    decorators = [ast.unparse(one) for one in function.decorator_list]
    return any(one.startswith(COMPILERS) for one in decorators)


def functions_that_are_not_compiled(path):
    """Yield the functions of a file that Numba does not compile, without `__init__`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            if not is_compiled(node):
                yield node


def test_functions_have_few_arguments():
    many = []
    for path in FILES:
        for node in functions_that_are_not_compiled(path):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in arguments)
            assert count <= MAX_ARGUMENTS, f"{path}: {node.name} has {count} arguments"
            many += [node.name] * (count > MANY_ARGUMENTS)
    assert len(many) <= MAX_WITH_MANY, many


def test_packages_have_few_files():
    models = set(imported_modules(ROOT / "baselines" / "__init__.py"))
    for package in ORDER:
        files = [path for path in ROOMS if room_of(path) == package]
        shared = [path for path in files if name_of(path) not in models]
        count = sum(path.stem != "__init__" for path in shared)
        assert count <= MAX_FILES, f"{package} has {count} files"


NUMBERS = ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant
GROUPS = ast.Tuple, ast.List, ast.Dict, ast.expr_context


def count_numbers(value):
    """Return how many numbers stand in an expression; a sum or a power is one."""
    nodes = list(ast.walk(value))
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    real = [type(one) in (int, float) for one in constants]  # not bool
    if not all(isinstance(node, NUMBERS + GROUPS) for node in nodes):
        return 0
    if not any(isinstance(node, GROUPS) for node in nodes):
        return int(all(real))
    return sum(real)


def named_numbers(path):
    """Yield names of a module that stand for numbers, their values, and how many."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            (target,), value = node.targets, node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
            for name, number in pairs:
                if count_numbers(number):
                    yield ast.unparse(name), ast.unparse(number), count_numbers(number)


def test_files_of_tests_differ_in_their_names():
    """Folders of tests are no packages, so pytest cannot import two of one name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)) > 50


def test_there_are_few_numbers():
    found = [one for path in FILES for one in named_numbers(path)]
    count = sum(many for _, _, many in found) + len(Tuning._fields)
    assert count <= MAX_NUMBERS, f"{count} numbers"


def test_a_name_has_one_value():
    values = {}
    for path in FILES:
        for name, value, _ in named_numbers(path):
            values.setdefault(name, set()).add(value)
    ambiguous = [name for name, found in values.items() if len(found) > 1]
    assert not ambiguous


def test_estimators_have_few_classes_of_ours():
    for name in ("SWSGPRegressor", "SWSGPClassifier"):
        kinds = getattr(skswsgp, name).__mro__
        ours = [kind for kind in kinds if kind.__module__.startswith("skswsgp")]
        mixins = [kind.__name__ for kind in ours if kind.__name__.endswith("Mixin")]
        assert len(mixins) <= MAX_MIXINS, mixins
        assert len(ours) <= MAX_MIXINS + 2, ours  # with the base and the class itself


def test_estimators_have_few_parameters():
    for name, most in MAX_PARAMETERS.items():
        parameters = getattr(skswsgp, name)().get_params(deep=False)
        assert len(parameters) <= most, f"{name} has {len(parameters)} parameters"


def lines_of_code(path):
    """Return numbers of the lines of a file without docstrings, comments and blanks."""
    text, left_out = path.read_text(), set()
    for node in ast.walk(ast.parse(text)):
        owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if owner and ast.get_docstring(node) is not None:
            first = node.body[0]
            left_out |= set(range(first.lineno, first.end_lineno + 1))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    code = {number for number, line in lines if line and not line.startswith("#")}
    return code - left_out


def count_lines_of_code(path):
    """Return the number of `lines_of_code`."""
    return len(lines_of_code(path))


def test_functions_without_an_entry_for_python_are_called_by_compiled_code():
    """Python would end with a segmentation fault in a call of one."""
    inner, called = set(), []
    for path in FILES:
        tree, sources = ast.parse(path.read_text()), {}
        waiting, own = [tree], f"skswsgp.{name_of(path)}"
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                sources |= {one.name: node.module for one in node.names}
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef) and is_compiled(node):
                decorator = ast.unparse(node.decorator_list[0])
                if decorator in ("njit_inner", "njit_small"):
                    inner.add(f"{own}.{node.name}")
                continue
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                called.append(f"{sources.get(name.partition('.')[0], own)}.{name}")
            waiting.extend(ast.iter_child_nodes(node))
    assert inner
    assert not inner.intersection(called)


def test_the_core_is_short():
    files = [path for path in ROOMS if room_of(path) in CORE]
    count = sum(count_lines_of_code(path) for path in files)
    assert count <= MAX_LINES_OF_CORE, f"{count} lines of code"


def test_functions_are_short():
    for path in FILES:
        code = lines_of_code(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                count = len(code & set(range(node.lineno, node.end_lineno + 1)))
                assert count <= MAX_LINES_OF_FUNCTION, (path, node.name, count)


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
