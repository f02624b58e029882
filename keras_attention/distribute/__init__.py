"""Training on several devices that agrees with one: on `tf.distribute`, and on JAX."""

from .global_mean import GlobalMean
from .one_replica import ReleasesGraphs
from .replica_safe import make_replica_safe, spread_seeds
from .strategies import even_batches, make_data_parallel, make_strategy, replica_batches
from .workers import (
    Cluster,
    WorkerLost,
    Workers,
    find_cluster,
    multi_worker_strategy,
    naming_lost_workers,
)

__all__ = [
    "Cluster",
    "GlobalMean",
    "ReleasesGraphs",
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
