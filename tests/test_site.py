"""The site builds without a warning, and names all that is public."""

import ast
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from helpers import ROOT, SITE, copy_settings, public_names

import skswsgp

SOURCES = sorted(Path(skswsgp.__file__).parent.rglob("*.py"))
TROUBLES = ROOT / "doc" / "user_guide" / "troubleshooting.md"


def template(node):
    """Return the text of a string of Python, with … for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.Constant):
        return re.sub(r"\{.*?\}", "…", str(node.value))
    return "…"


def test_each_heading_is_part_of_a_message():
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    texts = (ast.JoinedStr, ast.Constant)
    nodes = [node for tree in trees for node in ast.walk(tree)]
    messages = "\n".join(template(node) for node in nodes if isinstance(node, texts))
    headings = re.findall(r"(?m)^### `(.*)`$", TROUBLES.read_text())
    assert len(headings) > 40
    for heading in headings:
        assert heading in messages, heading


def test_each_warning_has_a_heading():
    headings = re.findall(r"(?m)^### `(.*)`$", TROUBLES.read_text())
    calls = [
        node
        for path in SOURCES
        if path.parent.name != "baselines"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("warn_caller", "warnings.warn")
    ]
    messages = [template(call.args[0]) for call in calls]
    messages = [message for message in messages if message != "…"]  # a name
    assert len(messages) > 8
    for message in messages:
        assert any(heading in message for heading in headings), message


def test_the_reference_has_all_public_names():
    text = (ROOT / "doc" / "api.md").read_text()
    found = []
    for module, names in re.findall(r"currentmodule:: (\S+)(.*?)```", text, re.DOTALL):
        import_module(module)
        found += [f"{module}.{name}" for name in re.findall(r"(?m)^   (\w+)$", names)]
    assert sorted(found) == sorted(public_names())


def test_the_first_command_for_the_site_draws_the_gallery():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    commands = re.findall(r"python -m sphinx\b.*", text)
    assert commands[0] == "python -m sphinx -W --keep-going doc doc/_build"
    assert '"plot_gallery": "True"' in (ROOT / "doc" / "conf.py").read_text()


def test_titles_are_words_and_no_questions_or_dates():
    for folder in ("user_guide", "benchmarks"):
        for page in (ROOT / "doc" / folder).glob("*.md"):
            title = page.read_text().partition("\n")[0]
            assert re.fullmatch(r"# [A-Z].*[^?]", title), title


def test_headings_of_the_guide_are_words_that_people_search():
    for page in (ROOT / "doc" / "user_guide").glob("*.md"):
        for heading in re.findall(r"(?m)^##.*$", page.read_text()):
            assert not heading.endswith("?"), (page, heading)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site of a copy that has an address, and return its folder."""
    for package in (
        "myst_parser",
        "pydata_sphinx_theme",
        "sphinx_gallery",
        "sphinxext",
    ):
        pytest.importorskip(package, reason="needs the extra `doc`")
    folder = tmp_path_factory.mktemp("site")
    for name in "doc", "examples":
        built = shutil.ignore_patterns("_build", "api", "gallery", "generated")
        shutil.copytree(ROOT / name, folder / name, ignore=built)
    for name in "README.md", "CONTRIBUTING.md":
        shutil.copy(ROOT / name, folder)
    copy_settings(folder, f'Documentation = "{SITE}"')
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-D", "plot_gallery=0", "doc", "html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow  # it reads all docstrings and pages
def test_the_site_builds_with_all_pages(site):
    expected = {
        *(path.relative_to(ROOT / "doc") for path in ROOT.glob("doc/*.md")),
        *(path.relative_to(ROOT / "doc") for path in ROOT.glob("doc/[!_]*/*.md")),
        *(Path("gallery", path.name) for path in ROOT.glob("examples/plot_*.py")),
        *(Path("api", f"{name}.rst") for name in public_names()),
    }
    pages = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {path.with_suffix(".html") for path in expected} <= pages
    for page in site.glob("api/*.html"):
        assert "\\_" not in page.read_text(), page  # conf.py escapes no code


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(site):
    """Sphinx has looked at those between pages, but not at pictures and files."""
    n_links = 0
    for page in set(site.rglob("*.html")) - set(site.rglob("_static/*")):
        for link in re.findall(r'(?:href|src)="(?!https?:)([^"#?]+)', page.read_text()):
            assert (page.parent / link).exists(), (page, link)
            n_links += 1
    assert n_links > 1000


@pytest.mark.slow
def test_code_of_the_site_leads_to_the_reference_and_the_reference_to_sources(site):
    link = "api/skswsgp.SWSGPRegressor.html"
    for page, kind in (
        ("user_guide/tour", "codeautolink"),
        ("gallery/plot_stream", "glr"),
    ):
        text = (site / f"{page}.html").read_text()
        assert re.search(rf'<a class="[^"]*{kind}[^"]*" href="../{link}#', text), page
        assert "copybutton.js" in text
    sources = "_modules/skswsgp/_estimators/regressor.html"
    assert f'href="../{sources}#SWSGPRegressor"' in (site / link).read_text()


@pytest.mark.slow
def test_pages_name_their_address_and_a_card(site):
    for page in "index.html", "api/skswsgp.SWSGPRegressor.html":
        text = (site / page).read_text()
        assert f'rel="canonical" href="{SITE}/{page}"' in text
        (card,) = re.findall(r'property="og:image" content="(.*?)"', text)
        assert (site / card.removeprefix(f"{SITE}/")).exists()
    text = (site / "index.html").read_text()
    assert 'property="og:description" content="Predictions with intervals' in text


@pytest.mark.slow
def test_texts_for_pictures_keep_their_words(site):
    for page in "index", "generated/readme":
        text = (site / f"{page}.html").read_text()
        assert 'alt="Prices of 120 new diamonds' in text
        assert "intervals of 90 % that widen with the price" in text  # two lines


@pytest.mark.slow
def test_links_of_the_readme_on_the_index_lead_to_pages(site, monkeypatch):
    pytest.importorskip("hatchling", reason="needs the extra `release`")
    monkeypatch.syspath_prepend(ROOT / ".ci")
    text = import_module("readme").on_the_index((ROOT / "README.md").read_text(), SITE)
    links = re.findall(rf"\]\({SITE}/([^)#]+)(?:#([^)]*))?\)", text)
    assert len(links) > 30
    for path, place in links:
        assert (site / path).exists(), path
        assert not place or f'id="{place}"' in (site / path).read_text(), place


def pages_found(site, query):
    """Return the pages that the search of the site finds, the best first.

    Titles, entries of the index, names of objects and words score as in Sphinx's
    searchtools.js, which also takes parts of words where no page has the whole.
    """
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    titles, found, words = index["titles"], [], re.findall(r"\w+", query)

    def add(file, score, title=None):
        found.append((-score, (title or titles[file]).lower(), index["docnames"][file]))

    def share(text):
        is_part = query in text.lower() and len(query) >= len(text) / 2
        return is_part * len(query) / len(text)

    for title, places in index["alltitles"].items():
        for file, _ in places if share(title) else ():
            is_page = titles[file] == title
            of_page = None if is_page else f"{titles[file]} > {title}"
            add(file, round(15 * share(title)) + is_page, of_page)
    for entry, places in index["indexentries"].items():
        for file, _, is_main in places if share(entry) else ():
            add(file, round(100 * share(entry)) if is_main else -1)
    for prefix, objects in index["objects"].items():
        for file, kind, priority, _, name in objects:
            last, full = name.rpartition(".")[2].lower(), f"{prefix}.{name}"
            around = f"{full} {index['objnames'][str(kind)][2]} {titles[file]}".lower()
            if all(word in around for word in words) and any(w in last for w in words):
                score = (11 if last in words else 6) + {0: 15, 1: 5}.get(priority, -5)
                add(file, score, full)
    stem = pytest.importorskip("sphinx.search.en").SearchEnglish({}).stem
    scores = []
    for word in map(stem, words):
        files = [index[key].get(word, []) for key in ("terms", "titleterms")]
        files = [[one] if isinstance(one, int) else one for one in files]
        scores.append(dict.fromkeys(files[0], 5) | dict.fromkeys(files[1], 15))
    for file in set.intersection(*map(set, scores)):
        add(file, max(score[file] for score in scores))
    return [page for _, _, page in sorted(found)]


@pytest.mark.slow
def test_the_search_finds_what_people_type(site):
    expected = {
        "predict_interval": "api/skswsgp.SWSGPRegressor",
        "sample_f": "api/skswsgp.SWSGPRegressor",
        "prediction interval": "user_guide/uncertainty",
        "confidence interval": "user_guide/uncertainty",
        "standard deviation": "user_guide/uncertainty",
        "quantile regression": "user_guide/uncertainty",
        "feature importance": "user_guide/linear_map",
        "speed": "user_guide/production",
        "missing values": "user_guide/tables",
        "categorical features": "user_guide/tables",
        "gpu": "user_guide/gpu",
        "kernel": "user_guide/kernels",
        "online learning": "user_guide/streams",
        "load model": "user_guide/saving",
        "cross-validation": "user_guide/scikit_learn",
    }
    found = {query: pages_found(site, query)[0] for query in expected}
    assert found == expected
