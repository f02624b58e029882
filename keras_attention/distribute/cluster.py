"""The processes of a training on several machines."""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

EXPECTED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The workers of a training, and which of them this process is.

    Args:
        addresses: `host:port` of each worker; the first is the chief.
        index: which of them this process is.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes what is shared."""
        return self.index == 0


def find_cluster(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster that `TF_CONFIG` or else Slurm describes; None where neither does.

    Of Slurm's variables, those that `srun` sets for each task are read, by TensorFlow's
    `SlurmClusterResolver`: each task is a worker. (`srun` with one task is no cluster.)

    Args:
        environment: The environment variables. Slurm's are always those of the process.

    Raises:
        ValueError: Where `TF_CONFIG` is not what it should be: what was expected is named.

    Example:

    ```python
    from keras_attention.distribute import find_cluster

    task = '{"cluster": {"worker": ["a:5000", "b:5000"]}, "task": {"type": "worker", "index": 1}}'
    find_cluster({"TF_CONFIG": task})  # Cluster(addresses=('a:5000', 'b:5000'), index=1)
    ```
    """
    text = environment.get("TF_CONFIG", "").strip()
    if text:
        return _read(text)
    if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) < 2 or "SLURM_PROCID" not in environment:
        return None
    import tensorflow as tf

    # Which GPUs a task sees is Slurm's to say, by --gpus-per-task: the numbers here only have to
    # fit each other, and spare the call of nvidia-smi.
    tasks = int(environment["SLURM_STEP_NUM_TASKS"])
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
    )
    addresses = resolver.cluster_spec().as_dict()["worker"]
    return Cluster(tuple(addresses), resolver.task_id)


def multi_worker_strategy(
    cluster: Cluster, timeout: float = 600.0
) -> "tf.distribute.MultiWorkerMirroredStrategy":
    """Wait for all workers, and return the strategy of this one.

    TensorFlow waits for workers without end and without a word; here the wait ends, and the error
    names who did not come. Call it before TensorFlow runs its first operation, which is when the
    connections between workers can still be set up.

    Args:
        cluster: The workers, the same on each but for `index`.
        timeout: Seconds that the workers may take to start.

    Raises:
        TimeoutError: Naming the addresses at which nobody answered.
    """
    import tensorflow as tf

    wait_for_workers(cluster, timeout)
    task = {"type": "worker", "index": cluster.index}
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": list(cluster.addresses)}, "task": task}
    )
    return tf.distribute.MultiWorkerMirroredStrategy()


def wait_for_workers(cluster: Cluster, timeout: float) -> None:
    """Wait until somebody answers at the address of every other worker.

    Until TensorFlow listens at this worker's own port, a plain socket does.

    Raises:
        TimeoutError: Naming the addresses at which nobody answered in `timeout` seconds.
        OSError: Where this worker cannot listen at its own port.
    """
    end = time.monotonic() + timeout
    port = int(cluster.addresses[cluster.index].rpartition(":")[2])
    missing = [a for i, a in enumerate(cluster.addresses) if i != cluster.index]
    with _listening(port):
        while missing:
            missing = [address for address in missing if not answers(address)]
            if missing and time.monotonic() > end:
                raise TimeoutError(
                    f"no worker answered at {', '.join(missing)} within {timeout:g} seconds: is "
                    "it running there, with the same list of workers, and is the port open?"
                )
            if missing:
                time.sleep(0.2)


def _listening(port: int) -> socket.socket:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("", port))
        server.listen(128)
    except OSError as error:
        server.close()
        raise OSError(f"this worker cannot listen at its port {port}: {error.strerror}") from None
    return server


def answers(address: str) -> bool:
    """Return whether somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
    except OSError:
        return False
    return True


def _read(text: str) -> Cluster:
    """Return the cluster that a `TF_CONFIG` describes, chief first."""

    def refuse(what):
        return ValueError(f"TF_CONFIG {what}. Expected: {EXPECTED}. Received: {text}")

    try:
        content = json.loads(text)
        jobs, task = content["cluster"], content["task"]
        kind, index = task["type"], int(task["index"])
        jobs = {name: list(addresses) for name, addresses in jobs.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise refuse(f"is not as it should be ({type(error).__name__}: {error})") from None
    if other := set(jobs) - {"chief", "worker"}:
        raise refuse(f"has the job {min(other)}, and all are workers here (or one is the chief)")
    if len(jobs.get("chief", ())) > 1 or not any(jobs.values()):
        raise refuse("must name one worker or more, and one chief at most")
    addresses = [*jobs.get("chief", ()), *jobs.get("worker", ())]
    for address in addresses:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise refuse(f"has the address {address!r}, which is not host:port")
        if addresses.count(address) > 1:
            raise refuse(f"has the address {address} twice")
    if not 0 <= index < len(jobs.get(kind, ())):
        raise refuse(f"says that this is {kind} {index}, and there is no such worker")
    before = len(jobs.get("chief", ())) if kind == "worker" else 0
    return Cluster(tuple(addresses), before + index)
