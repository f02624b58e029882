"""Every public layer, with what the checks of this folder need of it.

The entries lie in the modules of `entries/`, one for each family of layers; each has a dictionary
`ENTRIES` by layer class. A layer that `keras_attention.layers` exports without an entry there
fails the suite.
"""

import importlib
import pkgutil

from tests.contracts import entries
from tests.contracts.plain import Plain


def collected():
    """The entries of every module, by layer class."""
    result = {}
    for module in pkgutil.iter_modules(entries.__path__):
        found = importlib.import_module(f"{entries.__name__}.{module.name}").ENTRIES
        twice = [cls.__name__ for cls in found if cls in result]
        if twice:
            raise ValueError(f"A layer has one entry. Received: another of {twice}")
        result |= found
    return result


ENTRIES = collected()

# One case of each layer, for the checks that take seconds.
FIRST_CASES = {entry.cases[0].name for entry in ENTRIES.values()}
CASES = {case.name: case for entry in ENTRIES.values() for case in entry.cases}
PLAIN = {name: case for name, case in CASES.items() if isinstance(case, Plain)}
RECURRENT = {name: case for name, case in CASES.items() if name not in PLAIN}
STEPPED = {name: case for name, case in CASES.items() if hasattr(case.layer, "step")}
