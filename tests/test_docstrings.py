"""Public docstrings keep to numpydoc, by the settings of pyproject.toml."""

import ast
from pathlib import Path

import pytest
from numpydoc.hooks.validate_docstrings import parse_config, process_file

import skswsgp

ROOT = Path(__file__).parents[1]
PACKAGE = Path(skswsgp.__file__).parent
PUBLIC = [path for path in PACKAGE.glob("*.py") if not path.name.startswith("_")]
PUBLIC += [
    PACKAGE / "_estimators" / f"{name}.py"
    for name in ("base", "classifier", "regressor")
]


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_docstrings_are_valid(path):
    assert process_file(str(path), parse_config(ROOT)) == []


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
