"""What pyproject.toml cannot say: templates and static files are data of the package in a wheel.

In a checkout they lie beside the package, where a page's author looks for them; `kvaudit.settings` knows both.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPages(build_py):
    """Adds them as ``kvaudit/_templates`` and ``kvaudit/_static``."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in ("templates", "static"):
                self.copy_tree(name, str(Path(self.build_lib, "kvaudit", f"_{name}")))


setup(cmdclass={"build_py": BuildWithPages})
