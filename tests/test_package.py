"""What `import skswsgp` imports, and which names it has from then on."""

import subprocess
import sys

import pytest

import skswsgp

MODULES = "baselines", "dask", "displays", "kernels", "metrics", "solvers"


def run(code):
    """Run code in a fresh process, which has to succeed."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_import_of_the_package_leaves_numba_and_scikit_learn_out():
    run("""
import sys, skswsgp
dir(skswsgp), skswsgp.__version__
found = {"numba", "numpy", "scipy", "sklearn"} & set(sys.modules)
assert not found, found
""")


def test_the_estimators_come_without_models_to_compare_with_and_pictures():
    run("""
import sys
from skswsgp import SWSGPClassifier, SWSGPRegressor
for name in ("baselines", "dask", "displays", "metrics"):
    assert f"skswsgp.{name}" not in sys.modules, name
""")


def test_each_public_name_is_reachable_after_the_import_of_the_package():
    """In a fresh process, where no other module has imported the name before."""
    run(f"""
import sys, skswsgp
assert not vars(skswsgp).keys() & {{*skswsgp.__all__}} - {{"__version__"}}
for name in skswsgp.__all__:
    assert name in dir(skswsgp), name
    assert getattr(skswsgp, name) is getattr(skswsgp, name), name
for name in {MODULES}:
    assert getattr(skswsgp, name) is sys.modules["skswsgp." + name], name
""")


def test_all_names_are_imported_by_a_star():
    run("""
from skswsgp import *
assert SWSGPRegressor().get_params() and kernels.OnColumns and metrics.crps
""")


def test_other_names_are_refused_as_by_any_module():
    with pytest.raises(AttributeError, match=r"'skswsgp' has no attribute 'SWSGP'"):
        skswsgp.SWSGP  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'features'"):
        from skswsgp import features  # noqa: F401
