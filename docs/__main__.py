"""Gather the pages, and have Sphinx make HTML of them. A warning is an error."""

import os
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs import api, first, gallery, lessons

ROOT = Path(__file__).parent.parent
WRITTEN, SOURCE, SITE = ROOT / "docs", ROOT / "build" / "docs-source", ROOT / "build" / "docs"


def gather() -> None:
    """All that Sphinx reads, in a fresh folder."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(WRITTEN, SOURCE, ignore=shutil.ignore_patterns("*.py", "_static", "__pycache__"))
    shutil.copytree(
        ROOT / "figures", SOURCE / "figures", ignore=shutil.ignore_patterns("*.py", "__pycache__")
    )
    for page in SOURCE.rglob("*.md"):  # written so that its links lead somewhere in a clone, too
        page.write_text(placed(page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copy(ROOT / "CHANGELOG.md", SOURCE / "changelog.md")
    lessons.write(ROOT / "notebooks", SOURCE / "lessons")
    gallery.write(SOURCE / "gallery")
    api.write(SOURCE / "api")
    first.write(SOURCE / "served" / "index.html")


def placed(text: str) -> str:
    """A page whose links lead to where pictures and lessons are on the site."""
    text = text.replace("../notebooks/README.md", "lessons/index.md")
    return text.replace("../figures/", "figures/").replace("../notebooks/", "lessons/")


def build(source: Path = SOURCE, site: Path = SITE) -> int:
    """Sphinx's exit status: 0 without a warning."""
    shutil.rmtree(site, ignore_errors=True)
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    trees = ["--fresh-env", "--doctree-dir", str(source.with_name(source.name + "-trees"))]
    return sphinx([*strict, *trees, "--conf-dir", str(WRITTEN), str(source), str(site)])


def quiet_kernels() -> None:
    """Pages run as for anybody, without the startup files of who builds, and a kernel starts silently."""
    home = ROOT / "build" / "ipython"
    profile = home / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(home)


if __name__ == "__main__":
    gather()
    quiet_kernels()
    status = build()
    if status == 0:
        print(f"The site is in {SITE.relative_to(ROOT)}/; open {SITE.relative_to(ROOT)}/index.html")
    sys.exit(status)
