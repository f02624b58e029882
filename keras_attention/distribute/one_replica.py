"""Training in one replica on TensorFlow, which then keeps nothing of it."""

from typing import Any

import keras


class ReleasesGraphs:
    """Mixin of a `keras.Model`: TensorFlow frees the graph of a training that is over.

    Keras' optimizer sums gradients over all replicas, even if there is only one. TensorFlow never
    frees the function that does so, nor the graph around it, which is a whole training step. This
    mixin runs the step in TensorFlow's cross-replica context, where Keras leaves the sum out. The
    update stays the same, as it is a sum of one.

    Under a strategy, in a cross-replica context, on another backend and with a
    `LossScaleOptimizer`, training is Keras' own.

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
        context = tf.distribute.get_replica_context()
        if scales or context is None or tf.distribute.has_strategy():
            return step(*args)
        return context.merge_call(lambda strategy: step(*args))
