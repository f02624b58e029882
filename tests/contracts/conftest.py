"""Which cases a backend tests by default."""

import pytest

from tests.contracts.backend import BACKEND
from tests.contracts.registry import CASES, FIRST_CASES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """On JAX, leave every case of a layer but its first to the slow tests.

    JAX compiles each operation for each shape: all cases would take most of an hour.
    """
    if BACKEND != "jax":
        return
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        if name in CASES and name not in FIRST_CASES:
            item.add_marker("slow")
