"""Training in several processes that talk over loopback, beside a single one."""

import json
import socket
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.distribute import Cluster, find_cluster
from keras_attention.distribute.workers import wait_for_workers
from tests.applications.cluster import free_addresses, start_workers, wait_for
from tests.distribute.same_training import train

WORKER = (sys.executable, "-m", "tests.distribute.worker")


def run_workers(count, folder, *options):
    """Run so many workers; return what each left."""
    return wait_for(start_workers([[folder / f"{n}.npz", *options] for n in range(count)], WORKER))


def assert_workers_agree(count, folder):
    model, log, evaluated = train(tf.distribute.get_strategy())
    expected = [np.asarray(v) for v in [*model.variables, *model.optimizer.variables]]
    for done in run_workers(count, folder):
        assert done.status == 0, done.err[-3000:]
    for index in range(count):
        with np.load(folder / f"{index}.npz") as saved:
            logs = json.loads(str(saved["log"]))
            arrays = [saved[f"arr_{i}"] for i in range(len(expected))]
        for mine, single in zip(logs, [*log, evaluated], strict=True):
            for name in single:
                np.testing.assert_allclose(mine[name], single[name], rtol=5e-6, err_msg=name)
        for array, single in zip(arrays, expected, strict=True):
            np.testing.assert_allclose(array, single, atol=5e-6)


@pytest.mark.slow
def test_two_workers_agree_with_one_process(tmp_path):
    assert_workers_agree(2, tmp_path)


@pytest.mark.slow
def test_three_workers_agree_with_one_process(tmp_path):
    assert_workers_agree(3, tmp_path)


@pytest.mark.slow
def test_keras_alone_still_fails(tmp_path):
    """When this fails, keras-team/keras#20585 is mended: see what make_replica_safe still does."""
    for done in run_workers(2, tmp_path, "plain"):
        assert done.status != 0 and "(PerReplica:" in done.err, done.err[-3000:]


def tf_config(kind="worker", index=1, **jobs):
    jobs = jobs or {"worker": ["a:5000", "b:5000"]}
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})}


def test_tf_config_is_read():
    assert find_cluster({}) is None
    assert find_cluster({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert find_cluster(tf_config()) == Cluster(("a:5000", "b:5000"), 1)
    jobs = {"worker": ["b:1", "c:1"], "chief": ["[::1]:1"]}
    assert find_cluster(tf_config("worker", 1, **jobs)) == Cluster(("[::1]:1", "b:1", "c:1"), 2)
    chief = find_cluster(tf_config("chief", 0, **jobs))
    assert chief.is_chief and not find_cluster(tf_config()).is_chief


def test_slurm_is_read(monkeypatch):
    variables = {
        "SLURM_PROCID": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "node[07-08]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert find_cluster() == Cluster(("node07:8888", "node07:8889", "node08:8888"), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not as it should be .JSONDecodeError"),
        ('{"cluster": {}}', "KeyError: 'task'"),
        ("[]", "TypeError"),
        (tf_config(index=2)["TF_CONFIG"], "says that this is worker 2, and there is no such"),
        (tf_config(kind="evaluator", index=0)["TF_CONFIG"], "says that this is evaluator 0"),
        (tf_config(worker=["a"])["TF_CONFIG"], "'a', which is not host:port"),
        (tf_config(worker=["a:x", "b:1"])["TF_CONFIG"], "'a:x', which is not host:port"),
        (tf_config(worker=["a:1", "a:1"])["TF_CONFIG"], "has the address a:1 twice"),
        (tf_config(worker=["a:1"], ps=["b:1"])["TF_CONFIG"], "has the job ps"),
        (tf_config(worker=[])["TF_CONFIG"], "must name one worker or more"),
    ],
)
def test_a_malformed_tf_config_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^TF_CONFIG .*{message}.* Expected: .*worker"):
        find_cluster({"TF_CONFIG": text})


def test_a_worker_that_never_comes_is_named():
    addresses = free_addresses(3)
    other = threading.Thread(
        target=lambda: pytest.raises(
            TimeoutError, wait_for_workers, Cluster(tuple(addresses), 1), 0.9
        )
    )
    other.start()
    with pytest.raises(TimeoutError, match=f"answered at {addresses[2]} within 0.6 seconds"):
        wait_for_workers(Cluster(tuple(addresses), 0), 0.6)
    other.join()


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen at its port {port}"):
            wait_for_workers(Cluster((f"127.0.0.1:{port}",), 0), 1)
