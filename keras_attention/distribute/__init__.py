"""Training on several devices that agrees with one: on `tf.distribute`, and on JAX."""

from keras_attention.distribute.batches import replica_batches
from keras_attention.distribute.cluster import Cluster, find_cluster, multi_worker_strategy
from keras_attention.distribute.data_parallel import even_batches, make_data_parallel
from keras_attention.distribute.global_mean import GlobalMean
from keras_attention.distribute.replica_safe import make_replica_safe
from keras_attention.distribute.seeds import spread_seeds
from keras_attention.distribute.strategies import make_strategy
from keras_attention.distribute.workers import WorkerLost, Workers, naming_lost_workers

__all__ = [
    "Cluster",
    "GlobalMean",
    "WorkerLost",
    "Workers",
    "even_batches",
    "find_cluster",
    "make_data_parallel",
    "make_replica_safe",
    "make_strategy",
    "multi_worker_strategy",
    "naming_lost_workers",
    "replica_batches",
    "spread_seeds",
]
