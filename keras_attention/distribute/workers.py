"""The processes of a training on several machines, and what they tell each other."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

EXPECTED = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Cluster:
    """The workers of a training, and which of them this process is.

    Args:
        addresses: `host:port` of each worker; the first is the chief.
        index: The place of this process among them.

    Example:

    >>> cluster = Cluster(("a:1", "b:1"), index=1)
    >>> cluster.is_chief, cluster.others()
    (False, ['a:1'])
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes what is shared."""
        return self.index == 0

    def others(self) -> list[str]:
        """Return the addresses of the other workers."""
        return [each for i, each in enumerate(self.addresses) if i != self.index]


def find_cluster(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Return the cluster that `TF_CONFIG` or else Slurm describes; None where neither does.

    With Slurm each task of `srun` is a worker; one task is no cluster.

    Args:
        environment: The environment variables. Slurm's are always those of the process.

    Raises:
        ValueError: Where `TF_CONFIG` is malformed; the message shows the form.

    Example:

    >>> task = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    >>> find_cluster({"TF_CONFIG": task})
    Cluster(addresses=('a:1', 'b:1'), index=1)
    """
    text = environment.get("TF_CONFIG", "").strip()
    if text:
        return _read(text)
    if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) < 2 or "SLURM_PROCID" not in environment:
        return None
    import tensorflow as tf

    # Slurm says which GPUs a task sees, by --gpus-per-task: these numbers must only fit each other.
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

    TensorFlow waits without end; this wait ends. Call it before TensorFlow's first operation.

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
    """Wait for an answer from all other workers; a socket answers here until TensorFlow does."""
    end = time.monotonic() + timeout
    port = int(cluster.addresses[cluster.index].rpartition(":")[2])
    missing = cluster.others()
    with _listening(port):
        while missing:
            missing = [address for address in missing if not _answers(address)]
            if missing and time.monotonic() > end:
                raise TimeoutError(
                    f"no worker answered at {', '.join(missing)} within {timeout:g} seconds: is "
                    "it running there, with the same list of workers, and is the port open?"
                )
            if missing:
                time.sleep(0.2)


class WorkerLost(RuntimeError):
    """Another worker of the training has ended, or cannot be reached any more."""


class Workers:
    """The workers of a training, as one of them sees the others.

    All workers call the same methods in the same order; each call waits for all.

    Args:
        strategy: What `multi_worker_strategy` returned.
        cluster: Its workers; None for one process, with any strategy or none.

    Example:

    >>> Workers().texts("ready")  # there is one
    ['ready']
    """

    def __init__(
        self, strategy: "tf.distribute.Strategy | None" = None, cluster: Cluster | None = None
    ) -> None:
        self.cluster = cluster or Cluster(("this process",), 0)
        self.count = len(self.cluster.addresses)
        self._sum: Any = _sum_function(strategy, self.count) if self.count > 1 else None

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes what is shared."""
        return self.cluster.is_chief

    def address(self, index: int) -> str:
        """Return the name of a worker in messages."""
        return self.cluster.addresses[index]

    def texts(self, text: str) -> list[str]:
        """Return the texts that all workers have given, in their order."""
        if self.count == 1:
            return [text]
        mine = np.frombuffer(text.encode(), np.uint8)
        lengths = self._gathered(np.array([len(mine)])).astype(int)[:, 0]
        padded = np.zeros(lengths.max(), np.uint8)
        padded[: len(mine)] = mine
        rows = self._gathered(padded).astype(np.uint8)
        return [bytes(row[:n]).decode() for row, n in zip(rows, lengths, strict=True)]

    def any(self, flag: bool) -> bool:
        """Return whether one of them says so."""
        return flag if self.count == 1 else bool(self._gathered(np.array([flag])).any())

    def from_chief(self, make: Callable[[], Any]) -> Any:
        """Call `make` on the chief alone; return its result, a JSON value, on all."""
        if self.count == 1:
            return make()
        return json.loads(self.texts(json.dumps(make(), default=float) if self.is_chief else "")[0])

    def agree(self, facts: dict[str, Any]) -> None:
        """Raise a ValueError that names the first fact, a JSON value, in which workers differ."""
        found = [json.loads(text) for text in self.texts(json.dumps(facts))]
        for index, other in enumerate(found[1:], 1):
            for name in dict.fromkeys([*found[0], *other]):
                own, its = found[0].get(name), other.get(name)
                if own != its:
                    raise ValueError(
                        f"the workers differ in {name}: {self.address(0)} has {own!r}, "
                        f"{self.address(index)} has {its!r}. Start all with the same."
                    )

    def silent(self) -> list[str]:
        """Return the addresses of the other workers at which nobody answers any more."""
        return [address for address in self.cluster.others() if not _answers(address)]

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """Return the values (n,) of all workers, (workers, n); each below 2**24."""
        rows = np.zeros((self.count, len(values)), "float32")
        rows[self.cluster.index] = values
        with naming_lost_workers():
            return self._sum(rows).numpy()


@contextmanager
def naming_lost_workers() -> Iterator[None]:
    """Turn TensorFlow's errors inside, where another worker has ended, into `WorkerLost`."""
    import tensorflow as tf

    errors = tf.errors
    lost = (errors.UnavailableError, errors.AbortedError, errors.CancelledError)
    try:
        yield
    except (*lost, errors.DeadlineExceededError, errors.InternalError) as error:
        raise WorkerLost("another worker has ended or cannot be reached") from error


def _sum_function(
    strategy: "tf.distribute.Strategy", count: int
) -> Callable[[np.ndarray], "tf.Tensor"]:
    """Return a function that adds up an array `(n, m)` over the workers."""
    import tensorflow as tf

    here = strategy.num_replicas_in_sync // count

    def share(array: "tf.Tensor") -> "tf.Tensor":
        context = tf.distribute.get_replica_context()
        # One of a worker's replicas speaks for it.
        speaks = context.replica_id_in_sync_group % here == 0
        return context.all_reduce("SUM", tf.where(speaks, array, tf.zeros_like(array)))

    @tf.function(input_signature=[tf.TensorSpec([None, None], "float32")], autograph=False)
    def total(array: "tf.Tensor") -> "tf.Tensor":
        return strategy.experimental_local_results(strategy.run(share, args=(array,)))[0]

    return total


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise OSError(f"this worker cannot listen at its port {port}: {error.strerror}") from None


def _answers(address: str) -> bool:
    """Return whether somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
    except OSError:
        return False
    return True


def _read(text: str) -> Cluster:
    """Return the cluster that a `TF_CONFIG` describes, chief first."""

    def refuse(what: str) -> ValueError:
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
