"""Make a release: `python .ci/release.py 0.1.0` tries it, and with `--tag` it is made.

Version and date are written, small models of the version saved, archives and the recipe
of conda-forge put into dist/ and checked, and all is committed and tagged. That happens
in a temporary clone, so that a failure leaves nothing behind; `--tag` brings it here.
It needs `pip install -e ".[release]"`.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from string import Template

from packaging.version import Version

ROOT = Path(__file__).parents[1]
MODELS = "tests/estimators/saved"
TODAY = f"{date.today()}"


def main():
    """Release a clone of what is committed here, and bring commit, tag and dist/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.1.0")
    parser.add_argument("--tag", action="store_true", help="release, do not only try")
    given = parser.parse_args()
    require_release(given.version)
    with tempfile.TemporaryDirectory() as folder:
        clone(folder)
        release(Path(folder), given.version)
        if not given.tag:
            print("nothing is left of this trial: --tag makes the release")
            return
        tag = f"v{given.version}"
        run(ROOT, "git", "fetch", "--quiet", "--no-tags", folder, "HEAD")
        run(ROOT, "git", "merge", "--quiet", "--ff-only", "FETCH_HEAD")
        run(ROOT, "git", "fetch", "--quiet", folder, "tag", tag)
        shutil.copytree(Path(folder, "dist"), ROOT / "dist")
    print(f"push {tag}, then: twine upload dist/skswsgp-*")


def clone(folder):
    """Clone what is here into a folder, where the same person commits."""
    who = run(ROOT, "git", "var", "GIT_COMMITTER_IDENT")
    name, email = re.match("(.*) <(.*)>", who).groups()
    who = "-c", f"user.name={name}", "-c", f"user.email={email}"
    run(ROOT, "git", "clone", "--quiet", *who, ".", folder)


def require_release(version):
    """Exit unless all is committed, and the version is a newer one with a page."""
    before = re.search(r'= "(.+)"', (ROOT / "skswsgp/_version.py").read_text())[1]
    usual = re.fullmatch(r"\d+\.\d+\.\d+", version)
    if not usual or Version(version) < Version(before):
        sys.exit(f"{version}: expected a version such as 0.1.0, after {before}.")
    title = page_of_changes(ROOT, version).read_text().partition("\n")[0]
    wrong = {
        "are changes that are not committed": run(ROOT, "git", "status", "--porcelain"),
        f"is a tag v{version}": run(ROOT, "git", "tag", "--list", f"v{version}"),
        "is a folder dist/": (ROOT / "dist").exists(),
        f"are changes with the title {title!r}": "(unreleased)" not in title,
    }
    for what in (what for what, found in wrong.items() if found):
        sys.exit(f"{version}: there {what}.")


def page_of_changes(root, version):
    """Return the page of changes of a version, as 0.1.md of 0.1.0."""
    return root / f"doc/changes/{version.removesuffix('.0')}.md"


def release(root, version):
    """Release the checkout of a folder."""
    replace(root / "skswsgp/_version.py", r'(?<== ").+(?="\n)', version)
    released = f"version: {version}\ndate-released: {TODAY}"
    replace(root / "CITATION.cff", r"(?m)^version: .+(\ndate-released: .+)?", released)
    replace(page_of_changes(root, version), "unreleased", TODAY)
    for models in (root / MODELS).glob("*.dev*.pkl"):
        models.unlink()
    python(root, f"{MODELS}/make.py")
    python(root, "-m", "pytest", "-q", "tests/test_project.py")
    python(root, "-m", "build", "--no-isolation")
    archives = sorted((root / "dist").iterdir())
    python(root, "-m", "twine", "check", "--strict", *map(str, archives))
    source = next(path for path in archives if path.suffix == ".gz")
    checksum = hashlib.sha256(source.read_bytes()).hexdigest()
    recipe = Template((root / ".ci/recipe.yaml").read_text())
    recipe = recipe.safe_substitute(version=version, sha256=checksum)
    (root / "dist/recipe.yaml").write_text(recipe)
    run(root, "git", "add", "--all")
    run(root, "git", "commit", "--quiet", "-m", f"Release {version}")
    run(root, "git", "tag", "-a", f"v{version}", "-m", f"skswsgp {version}")
    print(run(root, "git", "show", "--stat", "--format=%D: %s", "HEAD"))
    print("dist:", *(path.name for path in sorted((root / "dist").iterdir())))


def replace(path, pattern, text):
    """Replace the first place of a file that a pattern matches."""
    new, count = re.subn(pattern, text, path.read_text(), count=1)
    assert count, f"{path}: {pattern}"
    path.write_text(new)


def run(root, *command):
    """Run a command in a folder, and return what it prints."""
    how = {"check": True, "stdout": subprocess.PIPE, "text": True}
    return subprocess.run(command, cwd=root, **how).stdout.strip()


def python(root, *arguments):
    """Run Python in a folder, with the package of that folder."""
    env = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run([sys.executable, *arguments], cwd=root, env=env, check=True)


if __name__ == "__main__":
    main()
