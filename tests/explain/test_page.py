"""Representations as HTML link to the site that the metadata of the package names."""

from importlib import import_module

import pytest
from helpers import SITE, public_names
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr

from skswsgp import SWSGPRegressor


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs metadata with some lines, before all others."""

    def write(*lines):
        folder = tmp_path / "skswsgp-0.1.dist-info"
        folder.mkdir()
        text = "\n".join(["Metadata-Version: 2.4", "Name: skswsgp", *lines, ""])
        (folder / "METADATA").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    return write


def estimators():
    """Yield the names and the classes of the public estimators that have models."""
    for name in public_names():
        module, _, short = name.rpartition(".")
        one = getattr(import_module(module), short)
        if isinstance(one, type) and issubclass(one, BaseEstimator):
            if module != "skswsgp.solvers":
                yield name, one


def test_estimators_link_to_their_pages(install):
    urls = "Source, https://example.org", f"Documentation, {SITE}/"
    install(*(f"Project-URL: {url}" for url in urls))
    found = dict(estimators())
    assert len(found) == 15
    for name, estimator in found.items():
        link = f'href="{SITE}/api/{name}.html"'
        assert link in estimator_html_repr(estimator()), name

    class Derived(SWSGPRegressor):
        """A class of a user."""

    assert SITE not in estimator_html_repr(Derived())


def test_estimators_have_no_link_without_a_site(install):
    install("Project-URL: Source, https://example.org")
    for name, estimator in estimators():
        assert estimator()._get_doc_link() == "", name
