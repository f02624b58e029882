"""What every test runs under: the backend, quiet logs, the same seeds and dtype policy."""

import contextlib
import gc
import os
from pathlib import Path
from unittest import mock

gc.set_threshold(50_000, 20, 20)  # seldom: imports and graphs make many objects

# Read when TensorFlow, Keras and matplotlib are imported, so set before.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
if os.environ["KERAS_BACKEND"] == "jax":
    # JAX compiles every operation of every shape: with full optimisation, that is most of the time.
    # The devices are for tests of data parallelism; other tests use the first one.
    flags = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=4"
    os.environ.setdefault("XLA_FLAGS", flags)
    # Programs need not say which lines of Python they come from.
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    # Modules share what they compile, and so do runs. Two processes must not: files are not
    # written whole.
    compiled = Path(__file__).parents[1] / ".pytest_cache" / "jax"
    compiled /= os.environ.get("PYTEST_XDIST_WORKER", "main")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled)  # the workers inherit this process' own
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras  # noqa: E402
import pytest  # noqa: E402

SEED = 20

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Replicas for tests of tf.distribute; it can be said only before the first operation.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave to the slow tests what `by_default` does not choose of a parametrised test.

    JAX compiles each case anew, and other backends test all of them. So there a test of layers,
    operations or decoding has its first and its last case, and a test of the contracts every second
    one: tests with an even number have the even cases, the others the odd ones.
    """
    cases_of = {}
    for item in items:
        for mark in item.iter_markers("by_default"):
            case = item.callspec
            by_value = any(case.params[name] in values for name, values in mark.kwargs.items())
            if case.id not in mark.args and not by_value:
                item.add_marker("slow")
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            cases_of.setdefault((item.path, item.originalname), []).append(item)
    if keras.backend.backend() == "jax":
        for number, ((path, _), cases) in enumerate(cases_of.items()):
            kept = cases
            if path.parent.name in ("ops", "layers", "decoding"):
                kept = [cases[0], cases[-1]]
            elif path.parent.name == "contracts" and len(cases) > 8:
                kept = cases[number % 2 :: 2]
            for item in set(cases) - set(kept):
                item.add_marker("slow")


def pytest_collection_finish():
    leave_out_of_garbage_collection()


def leave_out_of_garbage_collection():
    """Never look again at what is there now. Keras collects all garbage with each `quantize`."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_start():
    """Start each test from the same seeds and dtypes, whichever tests ran before it.

    But for TensorFlow's own seed, which Keras' layers do not draw from: setting it frees all
    kernels, and making them anew for each test takes a third of the time.
    """
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    with mock.patch("tensorflow.random.set_seed"):
        keras.utils.set_random_seed(SEED)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@contextlib.contextmanager
def functions_of_tensorflow(*, traced):
    """Trace functions, or run them as they are: tracing a step or search takes longer than one."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(not traced)
    yield
    tf.config.run_functions_eagerly(before)


@pytest.fixture
def traced_nowhere():
    """A test without graphs of TensorFlow."""
    with functions_of_tensorflow(traced=False):
        yield


@pytest.fixture(scope="module")
def module_traced_nowhere():
    """A module and its fixtures without graphs of TensorFlow."""
    with functions_of_tensorflow(traced=False):
        yield


@pytest.fixture
def traced():
    """A test with graphs of TensorFlow in a module without."""
    with functions_of_tensorflow(traced=True):
        yield


@pytest.fixture(autouse=True, scope="module")
def nothing_left():
    """Free what JAX compiled for a module, and look for garbage no more in what is left of it.

    Thousands of programs exceed a process' memory maps.
    """
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()
    leave_out_of_garbage_collection()
