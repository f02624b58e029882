"""Random numbers that differ between replicas."""

import keras

# A prime: seeds that a user may choose one after another (1, 2, 3) stay apart on all replicas.
STRIDE = 1_000_003


def spread_seeds(model: keras.Model) -> None:
    """Give the seed generators of `model` another seed on each replica.

    A model's seed generators are variables, equal on all replicas, so that dropout would leave out
    the same units in the first row of every replica's part. Replica `r` gets its generators' seed
    plus `1000003 r`, counters unchanged: deterministic, and replica 0 keeps its own. Call it when
    the model is built, and again after the variables were restored from a checkpoint (which holds
    those of replica 0).

    Args:
        model: A built model, made under a strategy's scope. Without several replicas nothing is
            changed.

    Example:

    ```python
    import keras
    from keras_attention.distribute import spread_seeds

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5)])
    spread_seeds(model)  # one replica: nothing to do
    ```
    """
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is None or strategy.num_replicas_in_sync == 1:
        return
    import tensorflow as tf

    states = [v for v in model.variables if v.name.startswith("seed_generator_state")]
    firsts = [state.numpy() for state in states]  # the same on every worker

    def shift():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for state, first in zip(states, firsts, strict=True):
            shifted = tf.constant(first) + tf.cast([STRIDE * replica, 0], first.dtype)
            state.assign(shifted)

    tf.function(lambda: strategy.run(shift))()
