"""On JAX, Keras' own data parallelism gives our layers and losses what one device gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_devices_of_jax_agree_with_one():
    pytest.importorskip("jax")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.distribute.data_parallel"],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["devices"] == 4 and found["one"][0] != found["one"][-1]
    np.testing.assert_allclose(found["several"], found["one"], rtol=1e-5)
