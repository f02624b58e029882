"""What the workers of a training tell each other."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_attention.distribute.cluster import Cluster, answers

if TYPE_CHECKING:
    import tensorflow as tf


class WorkerLost(RuntimeError):
    """Another worker of the training has ended, or cannot be reached any more."""


class Workers:
    """The workers of a training, as one of them sees the others.

    All of them call the same methods in the same order; each call waits for all. With one process
    nothing is sent.

    Args:
        strategy: What `multi_worker_strategy` returned; any other strategy, and none, is one of one
            process.
        cluster: Its workers; None for one process.

    Example:

    ```python
    from keras_attention.distribute import Workers

    workers = Workers()
    workers.texts("ready")  # ["ready"]: there is one
    ```
    """

    def __init__(
        self, strategy: "tf.distribute.Strategy | None" = None, cluster: Cluster | None = None
    ):
        self.cluster = cluster
        self.count = len(cluster.addresses) if cluster else 1
        self._sum = _sum_function(strategy, self.count) if self.count > 1 else None

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes what is shared."""
        return self.cluster is None or self.cluster.is_chief

    def address(self, index: int) -> str:
        """Return how a worker is called in messages."""
        return self.cluster.addresses[index] if self.cluster else "this process"

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
        if self.count == 1:
            return flag
        with naming_lost_workers():
            return bool(self._sum(np.array([[flag]], "float32")).numpy().any())

    def wait(self) -> None:
        """Wait until all have come so far."""
        self.any(False)

    def from_chief(self, make: Callable[[], Any]) -> Any:
        """Return on each worker what `make` returns on the chief, where alone it is called.

        Args:
            make: Returns something that JSON keeps; NumPy's numbers become Python's.
        """
        if self.count == 1:
            return make()
        return json.loads(self.texts(json.dumps(make(), default=float) if self.is_chief else "")[0])

    def agree(self, facts: dict[str, Any]) -> None:
        """Compare what should be the same on all of them.

        Args:
            facts: Names, and values that JSON keeps.

        Raises:
            ValueError: Naming the first fact that differs, its values and who has them.
        """
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
        others = self.cluster.addresses if self.cluster else ()
        return [
            each for i, each in enumerate(others) if i != self.cluster.index and not answers(each)
        ]

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """Return the values (n,) of all workers, (workers, n); each below 2**24."""
        rows = np.zeros((self.count, len(values)), "float32")
        rows[self.cluster.index] = values
        with naming_lost_workers():
            return self._sum(rows).numpy()


@contextmanager
def naming_lost_workers() -> Iterator[None]:
    """Turn what TensorFlow says inside, where another worker has ended, into `WorkerLost`."""
    import tensorflow as tf

    errors = tf.errors
    try:
        yield
    except (
        errors.UnavailableError,
        errors.AbortedError,
        errors.CancelledError,
        errors.DeadlineExceededError,
        errors.InternalError,
    ) as error:
        raise WorkerLost("another worker has ended or cannot be reached") from error


def _sum_function(strategy, count):
    """Return a function that adds up an array `(n, m)` over the workers."""
    import tensorflow as tf

    here = strategy.num_replicas_in_sync // count

    def share(array):
        context = tf.distribute.get_replica_context()
        # One of a worker's replicas speaks for it.
        speaks = context.replica_id_in_sync_group % here == 0
        return context.all_reduce("SUM", tf.where(speaks, array, tf.zeros_like(array)))

    @tf.function(input_signature=[tf.TensorSpec([None, None], "float32")], autograph=False)
    def total(array):
        return strategy.experimental_local_results(strategy.run(share, args=(array,)))[0]

    return total
