"""Public docstrings keep to numpydoc, by the settings of pyproject.toml."""

import ast
import re
from inspect import getdoc, getmembers, isfunction, signature
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from numpydoc.docscrape import ClassDoc
from numpydoc.hooks.validate_docstrings import parse_config, process_file

import skswsgp
from skswsgp import SWSGPClassifier, SWSGPRegressor, baselines
from skswsgp._estimators import shared_docs
from skswsgp.baselines.shared_docs import SHARED as OF_BASELINES

ROOT = Path(__file__).parents[1]
PACKAGE = Path(skswsgp.__file__).parent
PUBLIC = [path for path in PACKAGE.glob("*.py") if not path.name.startswith("_")]
PUBLIC += sorted((PACKAGE / "baselines").glob("[!_]*.py"))
PUBLIC += sorted((PACKAGE / "displays").glob("[!_]*.py"))
for name in (
    "network", "inducing_posterior", "own_points", "predictive_density",
    "row_covariances", "sampler", "shared_docs",
):  # fmt: skip
    PUBLIC.remove(PACKAGE / "baselines" / f"{name}.py")  # of no public name
PUBLIC += [
    PACKAGE / "_estimators" / f"{name}.py"
    for name in ("base", "classifier", "regressor")
]
SHARED = shared_docs.SHARED | OF_BASELINES
ESTIMATORS = [SWSGPClassifier, SWSGPRegressor]
ESTIMATORS += [getattr(baselines, name) for name in baselines.__all__]
MAX_LINES = 150  # of a docstring; explanations belong to the user guide


def with_shared_text(path, folder):
    """Return a copy of a file, in a folder, whose docstrings hold the shared texts."""

    def indented(match):
        return indent(SHARED[match[2]], match[1])

    copy = folder / path.name
    copy.write_text(re.sub(r"(?m)^( +)\$(\w+)$", indented, path.read_text()))
    return copy


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_docstrings_are_valid(path, tmp_path):
    copy = with_shared_text(path, tmp_path)
    assert process_file(str(copy), parse_config(ROOT)) == []


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_docstrings_hold_the_shared_texts(estimator):
    own = [cls for cls in estimator.__mro__ if cls.__module__.startswith("skswsgp")]
    for one in (*own, *(value for cls in own for value in vars(cls).values())):
        assert not re.search(r"(?m)^ *\$\w", getattr(one, "__doc__", None) or "")
    parsed = ClassDoc(estimator)
    named = [name for each in parsed["Parameters"] for name in each.name.split(", ")]
    assert named == list(signature(estimator).parameters)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_docstrings_are_short(estimator):
    assert len(getdoc(estimator).splitlines()) <= MAX_LINES
    for name, value in getmembers(estimator, isfunction):
        if getattr(value, "__module__", "").startswith("skswsgp"):
            count = len((getdoc(value) or "").splitlines())
            assert count <= MAX_LINES // 3, f"{name} has {count} lines"


def test_docstrings_name_pages_of_the_guide():
    pages = (ROOT / "doc" / "user_guide").glob("*.md")
    titles = {f"# {title}" for title in named_titles()}
    assert len(titles) > 12
    assert titles <= {page.read_text().splitlines()[0] for page in pages}


def named_titles():
    """Yield the titles in quotes of the docstrings and texts of the package."""
    for path in PACKAGE.rglob("*.py"):
        quoted = r'[Ss]ee\s+"([^"]*)"|"([^"]*)"(?:\s+says|, in\s+the\s+folder)'
        for titles in re.findall(quoted, path.read_text()):
            yield " ".join("".join(titles).split())


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("estimator", [SWSGPClassifier, SWSGPRegressor])
def test_docstrings_list_the_attributes(estimator):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = estimator(random_state=0).fit(X, X[:, 0] > 0)
    named = [one.name for one in ClassDoc(estimator)["Attributes"]]
    named = {name for names in named for name in names.split(", ")}
    found = {name for name in vars(model) if re.fullmatch(r"[a-z]\w*_", name)}
    assert found <= named
    page = (ROOT / "doc" / "user_guide" / "attributes.md").read_text()
    missing = [name for name in named if f"`{name}`" not in page]
    assert not missing


def test_texts_are_shared():
    """Each is named by two docstrings at least, and by one name only."""
    assert not shared_docs.SHARED.keys() & OF_BASELINES.keys()
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    for name in SHARED:
        found = [re.findall(rf"(?m)^ +\${name}$", source) for source in sources]
        assert sum(map(len, found)) > 1, name


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_public_names_are_checked(path, tmp_path):
    """Without its docstring's parameters, each public class or function is named."""
    tree = ast.parse(path.read_text())
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not (path.parent != PACKAGE and isinstance(node, ast.FunctionDef))
    ]
    for node in public:
        node.body[0] = ast.Expr(ast.Constant("without a full stop"))
    broken = tmp_path / path.name
    broken.write_text(ast.unparse(tree))
    named = {name for _, name, *_ in process_file(str(broken), parse_config(ROOT))}
    assert named >= {f"{path.stem}.{node.name}" for node in public}
    assert public
