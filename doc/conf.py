"""Settings of the site: ``python -m sphinx -W --keep-going doc doc/_build``.

``-D plot_gallery=0`` leaves the examples of the gallery unexecuted.
"""

import posixpath
import re
import tomllib
from pathlib import Path

from sklearn.experimental import enable_halving_search_cv  # noqa: F401  an example has it
from sphinx import addnodes
from sphinx_gallery.sorting import ExplicitOrder

import skswsgp

DOC = Path(__file__).parent
PROJECT = tomllib.loads((DOC.parent / "pyproject.toml").read_text())["project"]
SITE = PROJECT.get("urls", {}).get("Documentation")  # its address, or None

project = "skswsgp"
author = "The skswsgp developers"
version = release = skswsgp.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_codeautolink",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
if SITE:  # cards, which need absolute links
    extensions.append("sphinxext.opengraph")
    html_baseurl = ogp_site_url = f"{SITE.rstrip('/')}/"
    ogp_image = "_static/card.png"
    ogp_image_alt = "The logo of skswsgp: a row joined to its nearest points"
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
toc_object_entries_show_parents = "hide"
default_role = "literal"  # `name` in docstrings is code
highlight_language = "text"  # indented formulas; blocks of code say python or sh
autodoc_typehints = "none"  # the sections of parameters say more
suppress_warnings = ["codeautolink.parse_block"]  # of parts of functions
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

myst_enable_extensions = ["attrs_block", "dollarmath"]  # classes for site.css
myst_heading_anchors = 3
numpydoc_show_class_members = False  # the templates list them

READING_ORDER = (  # from what most people ask first to what few do
    *("regression", "intervals", "quantile_boosting", "calibration", "flight_delays"),
    *("inducing_points", "scales", "linear_map", "digits", "counts", "outliers"),
    *("varying_noise", "elevation", "airline_passengers", "function_intervals"),
    *("function_draws", "active_learning", "bayesian_optimization", "stream"),
    *("memory_map", "growth", "search_on_dask"),
)
sphinx_gallery_conf = {
    "examples_dirs": str(DOC.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"quickstart|\bserve|optimize_with",
    "within_subsection_order": ExplicitOrder(
        [f"plot_{name}.py" for name in READING_ORDER]
    ),
    "plot_gallery": "True",
    "capture_repr": (),  # what examples print, without the value of their last line
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "skswsgp"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {"text": project, "image_light": html_favicon, "image_dark": html_favicon},
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "changes/*": [], "glossary": []}

# What lies outside of this folder, and the pages of the site that stand for it
COPIES = {
    "README.md": "doc/generated/readme.md",
    "CONTRIBUTING.md": "doc/generated/contributing.md",
}
INSIDE = {"examples": "doc/gallery/index.rst", **COPIES}
# The pages of the user guide by title
GUIDE = {
    path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "): path.stem
    for path in (DOC / "user_guide").glob("*.md")
}
TITLES = "|".join(re.escape(title).replace(r"\ ", r"\s+") for title in GUIDE)
METHODS = "describe partial_fit predict predict_interval sample_f".split()
# What people type into the search beside the words of titles, and where it is found
TYPED = {
    "api/skswsgp.SWSGPRegressor": {
        name: f"skswsgp.SWSGPRegressor.{name}" for name in METHODS
    },
    "user_guide/uncertainty": {
        "prediction intervals": "",
        "confidence intervals": "",
        "quantile regression": "",
        "uncertainty": "",
    },
    "user_guide/tables": {"categorical features": "", "one-hot encoding": ""},
    "user_guide/columns": {"feature scaling": ""},
    "user_guide/model": {"counts": "counts"},
}


def copy_pages_from_outside(app):
    """Write the pages of `COPIES`, with links that leave this folder."""
    for name, copy in COPIES.items():
        text = (DOC.parent / name).read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!https?:|#)", "](../../", text)
        (DOC.parent / copy).parent.mkdir(exist_ok=True)
        (DOC.parent / copy).write_text(text, encoding="utf-8")


def stay_on_the_site(app, docname, source):
    """Point links that leave this folder to the pages that stand for them."""
    folder = posixpath.dirname(f"doc/{docname}")

    def inside(match):
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        path = re.sub(r"^examples/(plot_\w+)\.py$", r"doc/gallery/\1.rst", path)
        return f"]({posixpath.relpath(INSIDE.get(path, path), folder)}"

    up = "../" * (docname.count("/") + 1)  # to the folder of the repository
    script = r"(?<!`)`((?:python\s)?(examples/plot_\w+\.py))`(?!`)"
    text = re.sub(script, rf"[`\1`]({up}\2)", source[0])
    source[0] = re.sub(r"\]\(((?:\.\./)+[\w./-]+)", inside, text)


def keep_words_apart(app, docname, source):
    """Join the lines of texts for pictures, whose ends MyST leaves out."""
    lines = r"(?<=!\[)[^\]]+(?=\]\()"
    source[0] = re.sub(lines, lambda match: " ".join(match[0].split()), source[0])


def leave_links_to_the_gallery(app, docname, source):
    """Let the gallery itself link the code of its pages."""
    if docname.startswith("gallery/plot_"):
        source[0] = f".. autolink-skip:: file\n\n{source[0]}"


def index_what_people_type(app, doctree):
    """Put `TYPED` and titles of the guide into the index, which the search prefers."""
    page, words = app.env.docname, {}
    for title, name in GUIDE.items():
        if page == f"user_guide/{name}":
            words = dict.fromkeys(re.split(r"[:,] | and ", title), "")
    words |= TYPED.get(page, {})
    entries = [("single", word, place, "main", None) for word, place in words.items()]
    doctree.insert(0, addnodes.index(entries=entries))


def leave_out_what_is_inherited(app, what, name, member, skip, options):
    """Skip members that scikit-learn or Python defines."""
    owner = getattr(getattr(member, "fget", member), "__module__", None) or ""
    return None if owner.startswith("skswsgp") else True


def read_attributes_as_text(app, what, name, member, options, lines):
    """Escape the last underscore of names as in X @ linear_map_: they are no links."""
    code = r"^ *(?:>>>|\.\.\.).*$|`+[^`]+`+"
    attribute = r"(?<![\w.])([A-Za-z]\w*)_(?=[\s,./)]|$)"
    lines[:] = re.sub(
        f"(?m){code}|{attribute}",
        lambda match: match[0] if match[1] is None else rf"{match[1]}\_",
        "\n".join(lines),
    ).split("\n")


def leave_out_flags_of_doctests(app, what, name, member, options, lines):
    """Cut comments that tell doctest how to run a line."""
    lines[:] = [re.sub(r" *# doctest:.*", "", line) for line in lines]


def link_pages_of_the_guide(app, what, name, member, options, lines):
    """Make links of the titles that docstrings quote, as in "Fitting and solvers".

    The sentence that says what titles in quotes are then has nothing to say.
    """

    def link(match):
        title = " ".join(match[1].split())
        return f":doc:`{title} </user_guide/{GUIDE[title]}>`"

    text = re.sub(r"Titles in quotes are pages[^.]*\.", "", "\n".join(lines))
    lines[:] = re.sub(f'"({TITLES})"', link, text).split("\n")


def setup(app):
    """Connect the functions above."""
    app.connect("builder-inited", copy_pages_from_outside)
    app.connect("source-read", stay_on_the_site)
    app.connect("source-read", keep_words_apart)
    app.connect("source-read", leave_links_to_the_gallery)
    app.connect("doctree-read", index_what_people_type)
    app.connect("autodoc-skip-member", leave_out_what_is_inherited)
    app.connect("autodoc-process-docstring", read_attributes_as_text, priority=900)
    app.connect("autodoc-process-docstring", link_pages_of_the_guide, priority=901)
    app.connect("autodoc-process-docstring", leave_out_flags_of_doctests)
