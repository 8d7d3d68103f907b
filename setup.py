"""What pyproject.toml has no words for: the lessons, and the pictures that they show, go into the package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithLessons(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:  # then they are found where they are, beside the package
            for file in (*Path("notebooks").glob("*.ipynb"), *Path("figures").glob("*.png")):
                target = Path(self.build_lib, "gpipe_sim", file)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


setup(cmdclass={"build_py": WithLessons})
