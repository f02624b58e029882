"""The version of the package, which setup.py reads."""

__version__ = "0.2.0"
