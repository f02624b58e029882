"""Training under `tf.distribute` that agrees with a single process."""

from keras_attention.distribute.batches import replica_batches
from keras_attention.distribute.cluster import Cluster, find_cluster, multi_worker_strategy
from keras_attention.distribute.global_mean import GlobalMean
from keras_attention.distribute.replica_safe import make_replica_safe
from keras_attention.distribute.seeds import spread_seeds
from keras_attention.distribute.strategies import make_strategy

__all__ = [
    "Cluster",
    "GlobalMean",
    "find_cluster",
    "make_replica_safe",
    "make_strategy",
    "multi_worker_strategy",
    "replica_batches",
    "spread_seeds",
]
