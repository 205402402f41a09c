"""What stands twice in files around the package is the same: commands, versions."""

import re
import tomllib
from pathlib import Path

import pytest

import skswsgp

yaml = pytest.importorskip("yaml", reason="needs PyYAML, which comes with dask")

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]


def commands(job):
    """Return the commands that a job of the workflow runs."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_the_workflow_runs_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    pattern = r"<!-- ci: (?:run|test) -->\n```sh\n(.*)\n```"
    of_readme = re.findall(pattern, readme)
    assert len(of_readme) == 2
    assert commands("newest") == of_readme
    assert commands("all-checks") == ["bash .ci/run"]
    tests = of_readme[1].rpartition(" && ")[2]
    assert commands("oldest")[-1] == commands("nightly")[-1] == tests


def test_the_workflow_runs_on_three_systems_and_the_oldest_python():
    matrix = JOBS["newest"]["strategy"]["matrix"]
    systems = {name.partition("-")[0] for name in matrix["os"]}
    assert systems == {"ubuntu", "macos", "windows"}
    oldest = SETTINGS["requires-python"].removeprefix(">=")
    setup = [step["with"] for step in JOBS["oldest"]["steps"] if "with" in step]
    assert matrix["python"][0] == setup[0]["python-version"] == oldest
    may_fail = [name for name, job in JOBS.items() if job.get("continue-on-error")]
    assert may_fail == ["nightly"]


def test_the_classifiers_name_what_the_workflow_runs_on():
    matrix = JOBS["newest"]["strategy"]["matrix"]
    known = [each.split(" :: ") for each in SETTINGS["classifiers"]]
    systems = {each[-1] for each in known if each[0] == "Operating System"}
    names = {"macos": "MacOS", "ubuntu": "Linux", "windows": "Windows"}
    assert systems == {names[each.partition("-")[0]] for each in matrix["os"]}
    pythons = [
        each[2] for each in known if each[:2] == ["Programming Language", "Python"]
    ]
    first, last = (int(version.removeprefix("3.")) for version in matrix["python"])
    versions = [f"3.{minor}" for minor in range(first, last + 1)]
    assert pythons == ["3", *versions, "Implementation"]


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == skswsgp.__version__
    assert citation["license"] == SETTINGS["license"]
    assert citation["abstract"] == SETTINGS["description"]
    assert citation["authors"] == SETTINGS["authors"]
    assert citation["keywords"] == SETTINGS["keywords"]
    paper = citation["references"][0]
    names = [author["family-names"] for author in paper["authors"]]
    assert re.search(
        r"\W+".join([*names, "(?s:.*)", *paper["title"].split()]),
        (ROOT / "doc" / "paper" / "swsgp.md").read_text(),
    )


def test_the_forms_for_reports_are_complete():
    forms = {"bug", "feature"}
    for name in forms:
        path = ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml"
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"]
        for field in form["body"]:
            text = "value" if field["type"] == "markdown" else "label"
            assert field["attributes"][text]
