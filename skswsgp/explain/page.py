"""Where the site describes a class, for representations of estimators as HTML."""

from importlib.metadata import PackageNotFoundError, metadata


def page_of(estimator):
    """Return the address of the page of an estimator's class, or "" without a site.

    The site is `Documentation` among the addresses of the installed package, which
    pyproject.toml sets. Classes that others derive have no page.
    """
    root, *rooms = type(estimator).__module__.split(".")
    site = documentation()
    if site is None or root != "skswsgp":
        return ""
    public = [root, *(room for room in rooms[:1] if not room.startswith("_"))]
    return f"{site}/api/{'.'.join(public)}.{type(estimator).__name__}.html"


def documentation():
    """Return the address of the site, or None."""
    try:
        urls = metadata("skswsgp").get_all("Project-URL", [])
    except PackageNotFoundError:
        return None
    site = dict(url.split(", ", 1) for url in urls).get("Documentation")
    return site and site.rstrip("/")
