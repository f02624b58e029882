"""The settings of the devices that a model is trained on."""

from dataclasses import dataclass
from typing import Literal

from .keys import Section, key

RESUMABLE = ("strategy", "devices", "timeout")
"""Keys that may differ when a run is continued: a batch is the same on other devices."""


@dataclass(frozen=True)
class DistributeConfig(Section):
    """The devices that a model is trained on. A batch is cut among the replicas of the model."""

    section = "distribute"

    strategy: Literal["none", "auto", "mirrored", "multi-worker", "data-parallel"] = key(
        "none",
        "none, one device; mirrored, a replica of the model on every visible GPU, or on each of "
        "`devices`; multi-worker, a replica on every GPU of several machines, whose processes "
        "TF_CONFIG or Slurm describes; data-parallel, on the JAX backend, a replica on every "
        "device of JAX, or on each of `devices`; auto, where there are several GPUs, mirrored, on "
        "JAX data-parallel, and else none",
        common=True,
    )
    devices: str | None = key(
        None,
        "names with commas between them, such as GPU:0,GPU:1; null for all visible ones",
        applies_to={"strategy": ("auto", "mirrored", "data-parallel")},
    )
    timeout: float = key(
        600.0, "with multi-worker alone, seconds that the other workers may take to come", above=0
    )
    batch: Literal["global", "replica"] = key(
        "global",
        "whether training.batch_size is global, the whole batch, so that the training section "
        "means the same on any number of replicas, or per replica, so that the batch grows with "
        "their number",
    )
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = key(
        "none",
        "by what training.learning_rate is multiplied: none, 1; linear, the number of replicas; "
        "sqrt, its square root",
        applies_to={"batch": ("replica",)},
    )
