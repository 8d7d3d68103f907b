"""What pyproject.toml has no words for.

The lessons, the exercises and the pictures that they show go into the package. Its description is the
README, with the project's address before each link and picture, since it is read far from them.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithLessons(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:  # then they are found where they are, beside the package
            lessons = (
                file
                for place in ("*", "exercises/*", "exercises/solutions/*")
                for file in Path("notebooks").glob(f"{place}.ipynb")
            )
            figures = Path("figures")
            for file in (*lessons, *figures.glob("*.png"), figures / "view.html"):
                target = Path(self.build_lib, "gpipe_sim", file)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


def description() -> str:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project["urls"]["Source"]
    text = Path("README.md").read_text(encoding="utf-8")
    pictures = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/blob/main/", pictures)


setup(
    cmdclass={"build_py": WithLessons},
    long_description=description(),
    long_description_content_type="text/markdown",
)
