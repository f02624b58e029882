"""Training in one replica on TensorFlow, which then keeps nothing of it."""

from typing import Any

import keras


class ReleasesGraphs:
    """Mixin of a `keras.Model` whose training leaves no graph behind on TensorFlow.

    Keras' optimizer adds gradients up over all replicas, also where there is one, by a function
    with its own gradient. TensorFlow keeps such functions for good, each with the graph that it is
    in: that of a whole training step. In TensorFlow's cross-replica context, which has no replicas
    to add up over, Keras leaves the sum out. It is a sum of one, so the update stays the same.

    A strategy of several replicas, another backend and a `LossScaleOptimizer` are left as they are.

    Example:

    ```python
    import keras
    from keras_attention.distribute import ReleasesGraphs


    class Model(ReleasesGraphs, keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, inputs):
            return self.dense(inputs)
    ```
    """

    def train_step(self, *args: Any) -> Any:
        step = super().train_step  # type: ignore[misc]
        if keras.backend.backend() != "tensorflow":
            return step(*args)
        import tensorflow as tf

        # The `apply` of a LossScaleOptimizer wants a replica's context.
        scales = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)  # type: ignore[attr-defined]
        if scales or tf.distribute.has_strategy():
            return step(*args)
        return tf.distribute.get_replica_context().merge_call(lambda strategy: step(*args))
