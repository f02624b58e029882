"""Imports of settings and errors without Keras.

A module such as `keras_attention.applications.translation.config` needs the standard library
alone, but Python runs the packages above it first, and those import Keras.
"""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PACKAGE = Path(find_spec("keras_attention").submodule_search_locations[0])
"""The folder of the installed package."""

NAME = "keras_attention_settings"
"""The package as which the applications are imported here, without what its folders import."""


def light(module: str) -> ModuleType:
    """Import a module of the applications, such as `"translation.config"`, without Keras.

    The module must import others relatively, and nothing but them and the standard library.
    """
    if NAME not in sys.modules:
        # Where a wheel has the applications, and where a source tree has them.
        places = (PACKAGE / "applications", PACKAGE.parent / "applications")
        applications = next(place for place in places if place.is_dir())
        folders = [each for each in applications.iterdir() if (each / "__init__.py").is_file()]
        for folder in (applications, *folders):
            name = NAME if folder == applications else f"{NAME}.{folder.name}"
            package = ModuleType(name)
            package.__path__ = [str(folder)]
            sys.modules[name] = package
    return importlib.import_module(f"{NAME}.{module}")
