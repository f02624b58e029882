"""Which cases a backend tests by default."""

import pytest

from tests.contracts.backend import BACKEND
from tests.contracts.registry import CASES, FIRST_CASES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """On JAX, leave every case of a layer but its first to the slow tests.

    JAX compiles each operation for each shape: all cases would take most of an hour. Tasks
    train on TensorFlow, and on JAX through the command (tests/applications/test_jax.py).
    """
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")
        is_task = item.path.name == "test_tasks.py" and BACKEND != "tensorflow"
        other_case = BACKEND == "jax" and name in CASES and name not in FIRST_CASES
        if other_case or is_task:
            item.add_marker("slow")
