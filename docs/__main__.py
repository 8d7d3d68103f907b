"""Gather the pages, and have Sphinx make HTML of them. A warning is an error."""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs import api, gallery, lessons

ROOT = Path(__file__).parent.parent
WRITTEN, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "docs-source", ROOT / "build" / "docs"


def gather() -> None:
    """All that Sphinx reads, in a fresh folder."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(WRITTEN, SOURCE, ignore=shutil.ignore_patterns("*.py", "_static", "__pycache__"))
    shutil.copytree(
        ROOT / "figures", SOURCE / "figures", ignore=shutil.ignore_patterns("*.py", "__pycache__")
    )
    shutil.copy(ROOT / "CHANGELOG.md", SOURCE / "changelog.md")
    lessons.write(ROOT / "notebooks", SOURCE / "lessons")
    gallery.write(SOURCE / "gallery")
    api.write(SOURCE / "api")


def build() -> int:
    """Sphinx's exit status."""
    shutil.rmtree(SITE, ignore_errors=True)
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    caches = ["--fresh-env", "--doctree-dir", str(ROOT / "build" / "doctrees")]
    return sphinx([*strict, *caches, "--conf-dir", str(WRITTEN), str(SOURCE), str(SITE)])


if __name__ == "__main__":
    gather()
    status = build()
    if status == 0:
        print(f"The site is in {SITE.relative_to(ROOT)}/; open {SITE.relative_to(ROOT)}/index.html")
    sys.exit(status)
