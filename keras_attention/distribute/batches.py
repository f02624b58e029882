"""Each replica's part of each batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def replica_batches(
    strategy: "tf.distribute.Strategy", make_dataset: Callable[[], "tf.data.Dataset"]
) -> "tf.distribute.DistributedDataset":
    """Cut every batch of a dataset into one part for each replica, in order.

    Replica `r` of `n` gets rows `⌊r B / n⌋` to `⌊(r + 1) B / n⌋` of a batch of `B`: the parts are
    the batch, whatever its size, and no row is in two of them. (Left to itself, `tf.distribute`
    shards a dataset of unknown batch size over workers by whole batches.) Each worker makes the
    dataset for itself and keeps its own rows, so it must be the same on all of them.

    A batch of fewer rows than replicas leaves some replicas none.

    Args:
        strategy: The strategy that the model was made under.
        make_dataset: Returns the dataset of whole batches.

    Returns:
        A distributed dataset, which `fit` takes.

    Example:

    ```python
    import tensorflow as tf
    from keras_attention.distribute import make_strategy, replica_batches

    strategy = make_strategy("auto")
    dataset = replica_batches(strategy, lambda: tf.data.Dataset.range(10).batch(4))
    sizes = [int(tf.shape(batch)[0]) for batch in dataset]  # 4, 4, 2
    ```
    """
    import tensorflow as tf

    replicas = strategy.num_replicas_in_sync

    def of_worker(context):
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here

        def parts(*batch):
            batch = batch[0] if len(batch) == 1 else batch

            def part(replica):
                rows = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
                start, stop = replica * rows // replicas, (replica + 1) * rows // replicas
                return tf.nest.map_structure(lambda array: array[start:stop], batch)

            return tf.data.Dataset.range(first, first + here).map(part)

        return make_dataset().flat_map(parts).prefetch(2 * here)

    return strategy.distribute_datasets_from_function(of_worker)
