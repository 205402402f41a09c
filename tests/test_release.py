"""What a release publishes: metadata, and the README of the index."""

import re
import shutil
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
SITE = "https://example.org/skswsgp"


def build(folder, urls=""):
    """Build the wheel of a copy with another table of addresses; return its path."""
    pytest.importorskip("hatchling", reason="needs the extra `release`")
    for name in ".ci", "skswsgp":
        shutil.copytree(ROOT / name, folder / name)
    for name in "LICENSE", "README.md":
        shutil.copy(ROOT / name, folder)
    settings = (ROOT / "pyproject.toml").read_text()
    settings = re.sub(r"(?ms)^\[project\.urls\]\n.*?(?=^\[)", "", settings)
    (folder / "pyproject.toml").write_text(f"{settings}\n{urls}")
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
    urls = f'[project.urls]\nDocumentation = "{SITE}/"\n'
    metadata, _ = metadata_of(build(tmp_path, urls))
    assert metadata.get_all("Project-URL") == [f"Documentation, {SITE}/"]
    text = metadata.get_payload(decode=True).decode()
    links = re.findall(r"\]\(([^)]+)\)", text)
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    assert not relative
    assert len([link for link in links if link.startswith(f"{SITE}/")]) > 30
    readme = (ROOT / "README.md").read_text()
    assert re.sub(r"\]\([^)]+\)", "]()", text) == re.sub(r"\]\([^)]+\)", "]()", readme)
