"""Refuses to build what would not work: this project is used from a clone.

A wheel would lack the configuration, the commands and the checkpoints that lie beside the packages,
and would put packages called `common` and `envs` into everybody's site-packages.
"""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

WHY = "dreamracer is used from a clone: run `make setup` there, or `pip install -e .`"


class NoWheel(bdist_wheel):
    """Building a wheel. (An editable install makes its own kind, and does not come here.)"""

    def run(self) -> None:
        raise SystemExit(WHY)


class NoSourceArchive(sdist):
    """Building a source archive."""

    def run(self) -> None:
        raise SystemExit(WHY)


setup(cmdclass={"bdist_wheel": NoWheel, "sdist": NoSourceArchive})
