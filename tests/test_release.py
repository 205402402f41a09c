"""What a release publishes: metadata, the README of the index, the recipe, a tag."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import date
from email import message_from_bytes
from zipfile import ZipFile

import pytest
from helpers import ROOT, SITE, copy_settings
from packaging.requirements import Requirement

import skswsgp

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which comes with dask")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE = yaml.safe_load((ROOT / ".ci" / "recipe.yaml").read_text())


def build(folder, urls=""):
    """Build the wheel of a copy with other addresses, and return its path."""
    pytest.importorskip("hatchling", reason="needs the extra `release`")
    for name in ".ci", "skswsgp":
        shutil.copytree(ROOT / name, folder / name)
    for name in "LICENSE", "README.md":
        shutil.copy(ROOT / name, folder)
    copy_settings(folder, urls)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    return next((folder / "dist").iterdir())


def metadata_of(wheel):
    """Return the metadata of a wheel, and the names of its files."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith("/METADATA"))
        return message_from_bytes(archive.read(path)), names


@pytest.mark.slow  # it builds the package
def test_the_wheel_has_types_and_without_an_address_the_readme_as_it_is(tmp_path):
    metadata, names = metadata_of(build(tmp_path))
    assert "skswsgp/py.typed" in names
    readme = (ROOT / "README.md").read_text()
    assert metadata.get_payload(decode=True).decode() == readme
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Project-URL"] is None


@pytest.mark.slow  # it builds the package
def test_links_of_the_readme_are_absolute_once_there_is_an_address(tmp_path):
    metadata, _ = metadata_of(build(tmp_path, f'Documentation = "{SITE}/"'))
    assert metadata.get_all("Project-URL") == [f"Documentation, {SITE}/"]
    text = metadata.get_payload(decode=True).decode()
    links = re.findall(r"\]\(([^)]+)\)", text)
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    assert not relative
    assert len([link for link in links if link.startswith(f"{SITE}/")]) > 30
    readme = (ROOT / "README.md").read_text()
    assert re.sub(r"\]\([^)]+\)", "]()", text) == re.sub(r"\]\([^)]+\)", "]()", readme)


def test_the_recipe_of_conda_is_that_of_the_project():
    project, needs = PROJECT["project"], RECIPE["requirements"]
    oldest = f">={RECIPE['context']['python_min']}"
    assert oldest == project["requires-python"]
    run = [need.replace("${{ python_min }}", oldest[2:]) for need in needs["run"]]
    expected = [f"python {oldest}"]
    for each in map(Requirement, project["dependencies"]):
        expected.append(f"{each.name} {each.specifier}")
    assert run == expected
    backend = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
    host = [f"{each.name} {each.specifier}" for each in backend]
    assert needs["host"] == ["python ${{ python_min }}.*", *host, "pip"]
    about = RECIPE["about"]
    assert about["summary"] == project["description"]
    assert about["license"] == project["license"]
    assert [about["license_file"]] == project["license-files"]


MODELS = """
from pathlib import Path
from skswsgp import __version__
Path(__file__).with_name(f"{__version__}.pkl").touch()
"""


@pytest.fixture
def clone(tmp_path):
    """Return a folder with what is here, a clone, and functions that run in it.

    Its script of saved models fits none, which would take a minute.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    for package in "build", "hatchling", "twine":
        pytest.importorskip(package, reason="needs the extra `release`")
    folder = tmp_path / "clone"
    how = {"capture_output": True, "text": True, "env": dict(os.environ)}
    for one in "AUTHOR", "COMMITTER":
        how["env"] |= {f"GIT_{one}_NAME": "A", f"GIT_{one}_EMAIL": "a@example.org"}

    def git(*arguments, cwd=folder):
        return subprocess.run(["git", *arguments], cwd=cwd, check=True, **how).stdout

    def release(*arguments):
        command = [sys.executable, ".ci/release.py", *arguments]
        return subprocess.run(command, cwd=folder, **how)

    git("clone", "--quiet", str(ROOT), str(folder), cwd=tmp_path)
    for name in git("ls-files", "-mo", "--exclude-standard", cwd=ROOT).splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests/estimators/saved/make.py").write_text(MODELS)
    git("add", "--all")
    git("commit", "--quiet", "-m", "TST Save no models")
    return folder, git, release


@pytest.mark.slow  # it builds the package twice
def test_one_command_tries_a_release_without_a_trace_and_makes_it(clone):
    folder, git, release = clone
    version = skswsgp.__version__.partition(".dev")[0]
    before = git("show-ref", "--head")
    tried = release(version)
    assert f"tag: v{version}" in tried.stdout, tried.stderr
    assert git("show-ref", "--head") == before
    assert not git("status", "--porcelain", "--ignored", "dist")

    made = release(version, "--tag")
    assert made.returncode == 0, made.stderr
    assert not git("status", "--porcelain")
    named = "skswsgp/_version.py", "CITATION.cff", "tests/estimators/saved"
    code, citation, models = (git("show", f"v{version}:{name}") for name in named)
    assert f'__version__ = "{version}"\n' in code
    citation = yaml.safe_load(citation)
    assert citation["version"] == version
    assert citation["date-released"] == date.today()
    assert models.split()[2:] == [f"{version}.pkl", "make.py"]
    page = f"doc/changes/{version.removesuffix('.0')}.md"
    title = git("show", f"v{version}:{page}").splitlines()[0]
    assert title.endswith(f"({date.today()})")
    recipe = yaml.safe_load((folder / "dist/recipe.yaml").read_text())
    assert recipe["context"]["version"] == version
    archive = folder / f"dist/skswsgp-{version}.tar.gz"
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert recipe["source"]["sha256"] == checksum
    assert (folder / f"dist/skswsgp-{version}-py3-none-any.whl").exists()
    assert release(version).stderr == f"{version}: there is a tag v{version}.\n"


@pytest.mark.slow  # it copies the repository
def test_a_release_that_fails_leaves_nothing(clone):
    folder, git, release = clone
    (folder / "tests/estimators/saved/make.py").write_text("raise SystemExit(7)")
    git("commit", "--quiet", "-a", "-m", "Fail after the version is written")
    before = git("show-ref", "--head")
    done = release(skswsgp.__version__.partition(".dev")[0], "--tag")
    assert done.returncode != 0
    assert "returned non-zero exit status 7" in done.stderr
    assert git("show-ref", "--head") == before
    assert not git("status", "--porcelain", "--ignored")


@pytest.mark.slow  # it copies the repository
@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.0.1", "expected a version such as 0.1.0, after"),
        ("v99", "expected a version such as 0.1.0, after"),
        ("99.0.0", "there are changes that are not committed"),
    ],
)
def test_a_release_is_refused_where_something_is_missing(clone, version, message):
    folder, git, release = clone
    shutil.copy(folder / "doc/changes/0.1.md", folder / "doc/changes/99.0.md")
    done = release(version, "--tag")
    assert done.returncode == 1
    assert message in done.stderr
    assert not git("tag")
