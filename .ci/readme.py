"""The README for the package index, where links of a file lead nowhere.

Once `[project.urls]` of pyproject.toml has the address of the site as `Documentation`,
links and pictures of README.md lead there.
"""

import re
from pathlib import Path, PurePosixPath

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Pages of the site that stand for files outside of doc/, see doc/conf.py
COPIES = {"CONTRIBUTING.md": "generated/contributing.md"}


def on_the_index(text, site):
    """Return the README with links to a site, whose address has no / at its end."""

    def absolute(match):
        path = PurePosixPath(COPIES.get(match[1], match[1].removeprefix("doc/")))
        if path.suffix in (".png", ".svg"):
            return f"]({site}/_images/{path.name}"
        return f"]({site}/{path.with_suffix('.html')}"

    return re.sub(r"\]\((?!https?:|#)([^)#]+)", absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Sets the README."""

    def update(self, metadata):
        """Set the README in the metadata, which are those of pyproject.toml."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        site = metadata.get("urls", {}).get("Documentation")
        if site is not None:
            text = on_the_index(text, site.rstrip("/"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
