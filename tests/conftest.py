"""What every test runs under: the backend, quiet logs, the same seeds and dtype policy."""

import os

# Read when TensorFlow, Keras and matplotlib are imported, so set before.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
if os.environ["KERAS_BACKEND"] == "jax":
    # JAX compiles every operation of every shape: with full optimisation, that is most of the time.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import keras  # noqa: E402
import pytest  # noqa: E402

SEED = 20

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Replicas for tests of tf.distribute; it can be said only before the first operation.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )


@pytest.fixture(autouse=True)
def same_start():
    """Start each test from the same seeds and policy, whichever tests ran before it."""
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(SEED)
    yield
    keras.config.set_dtype_policy(policy)


@pytest.fixture(autouse=True, scope="module")
def no_programs_left():
    """Free what JAX compiled for a module: thousands of programs exceed a process' memory maps."""
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
