"""The base of the networks: a `keras_hub.models.Backbone` that is written as a class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_attention.distribute import ReleasesGraphs
from keras_attention.paths import input_path, output_path

from ..arguments import KeepsArguments, without
from ..errors import UserError, check_counts
from ..store.files import replacing
from ..store.weights import SavedWhole, check_room, check_weights
from ..text import PAD_ID, START_ID, UNK_ID


class OwnModel(ReleasesGraphs, SavedWhole, KeepsArguments):
    """Mixin of networks and tasks."""


class Network(OwnModel, keras_hub.models.Backbone):
    """Base of the networks: ids in, logits out, every argument a plain value or a layer.

    A network is built once constructed. Its `get_config` is complete: a subclass keeps its
    arguments with `keep`, and `config_of` describes those that are layers. Names of attributes are
    the names of weights in saved files.

    Args:
        dtype: the dtype policy of the network and of the layers that it makes.
        **kwargs: `name` and `trainable`.
    """

    only_to_train = ("trainable", "switched")

    def __init__(self, *, dtype: Any = None, **kwargs: Any):
        keep_functional_apart()
        super().__init__(dtype=dtype, **kwargs)
        self._parts_given: dict[str, bool] = {}
        self._parts_are_frozen = False
        self._frozen_before_lora: tuple[int, ...] | None = None

    def part(self, name: str, given: keras.layers.Layer | None, make: Any) -> keras.layers.Layer:
        """Return the layer given for an argument, or the one that `make()` returns."""
        if given is not None and not isinstance(given, keras.layers.Layer):
            raise ValueError(
                f"`{name}` of {type(self).__name__} should be a Keras layer, or None for the "
                f"default. Received: {name}={given!r}"
            )
        self._parts_given[name] = given is not None
        return make() if given is None else given

    def config_of(self, **parts: keras.layers.Layer) -> dict[str, Any]:
        """Return the configuration of the parts that were given; None for those made here.

        It lacks the shapes that a part was built with, as the network builds it, and LoRA, whose
        kernels a file holds merged.
        """

        def described(layer):
            whole = keras.saving.serialize_keras_object(layer)
            return without("lora_rank", without("build_config", whole))

        return {
            name: described(layer) if self._parts_given[name] else None
            for name, layer in parts.items()
        }

    def __call__(self, inputs, *args, **kwargs):
        check_ids(inputs, type(self).__name__)
        return super().__call__(inputs, *args, **kwargs)

    def save_to_preset(self, preset_dir: Path | str, max_shard_size: float = 10) -> None:
        folder = output_path(preset_dir, is_preset=True)
        check_room(folder, self)  # before the first file
        super().save_to_preset(str(folder), max_shard_size)

    # Other tokens and labels.

    def entries(self) -> dict[str, list[tuple[keras.Variable, int]]]:
        """Return the weights with an entry for each token or label, and the axis of the entries.

        They come by the name of the argument that says how many entries there are.
        """
        return {}

    def with_entries(self, kept: Mapping[str, Sequence[int]]) -> "Network":
        """Return this network for other tokens or labels; those that stay keep their weights.

        Args:
            kept: by the name of an argument in `entries()`, the index that each entry of the new
                network has in this one, -1 for a new one. A new entry has the weights with which
                the new network starts.

        Raises:
            ValueError: where the network does not say which weights these are, or is quantized.
        """
        if any(each.quantization_mode is not None for each in self._flatten_layers()):
            raise UserError(
                "A quantized network keeps its vocabulary and its labels: change them first, and "
                f"quantize the result. Received: {self.name}, which is quantized."
            )
        known = self.entries()
        if unknown := sorted(set(kept) - set(known)):
            raise UserError(
                f"{type(self).__name__} cannot be given another {unknown[0]}: it does not say "
                "which of its weights have an entry for each. Keep that of the preset."
            )
        sizes = {
            name: (known[name][0][0].shape[known[name][0][1]], len(indices))
            for name, indices in kept.items()
        }
        new = type(self).from_config(_with_sizes(self.get_config(), sizes))
        axes: dict[int, dict[int, np.ndarray]] = {}
        for name, indices in kept.items():
            for weight, axis in known[name]:
                axes.setdefault(id(weight), {})[axis] = np.asarray(indices)
        for own, weight in zip(self.weights, new.weights, strict=True):
            before, after = (np.array(ops.convert_to_numpy(each)) for each in (own, weight))
            changed = axes.get(id(own), {})
            indices = [changed.get(axis, np.arange(size)) for axis, size in enumerate(own.shape)]
            if after.shape != tuple(map(len, indices)):
                raise UserError(
                    f"{own.path} has the shape {before.shape}, and {after.shape} with the new "
                    "vocabulary or labels; the network does not say which entries stay."
                )
            places = np.ix_(*(np.flatnonzero(each >= 0) for each in indices))
            after[places] = before[np.ix_(*(each[each >= 0] for each in indices))]
            weight.assign(after)
        return new

    # LoRA, by the calls of `Backbone`, whose own reach layers of other names and weights.

    def default_lora_layer_names(self) -> list[str]:
        """Return the names of the layers that LoRA can adapt, but those that training leaves."""
        trained = [each for each in self._adaptable() if each.trainable or not self.trainable]
        return list(dict.fromkeys(each.name for each in trained))

    def enable_lora(self, rank: int, target_layer_names: Sequence[str] | None = None) -> None:
        """Freeze the network, and learn a change of low rank for the kernels of its layers.

        A task that was trained before has to be compiled anew. A saved network holds merged
        kernels.

        Args:
            rank: the rank of the change.
            target_layer_names: the names of the layers; None for `default_lora_layer_names()`.

        Raises:
            ValueError: where a name is of no layer that LoRA can adapt, or the network has LoRA.
        """
        names = target_layer_names
        names = self.default_lora_layer_names() if names is None else names
        known = dict.fromkeys(each.name for each in self._adaptable())
        if not names or not set(names) <= set(known):
            raise ValueError(
                f"`target_layer_names` of a {type(self).__name__} should be among "
                f"{', '.join(known)}. Received: target_layer_names={names!r}"
            )
        self._adapt(rank, [i for i, each in enumerate(self._adaptable()) if each.name in names])

    def save_lora_weights(self, filepath: Path | str) -> None:
        """Write what LoRA has learnt, without the network, to a file that ends in `.lora.h5`.

        Raises:
            ValueError: where the network has no LoRA, or the file has another ending.
        """
        import h5py  # slow to import

        rank, places = self._adapted()
        if not places:
            raise ValueError(
                f"Call `enable_lora(rank)` first. Received: a {type(self).__name__} without LoRA"
            )
        if not str(filepath).endswith(".lora.h5"):
            raise ValueError(f"The file must end in `.lora.h5`. Received: filepath={filepath}")
        with replacing(filepath) as temporary, h5py.File(temporary, "w") as file:
            file["rank"], file["layers"] = rank, places
            for number, weight in enumerate(self._lora_weights()):
                file[f"weights/{number}"] = ops.convert_to_numpy(weight)

    def load_lora_weights(self, filepath: Path | str) -> None:
        """Read what `save_lora_weights` wrote; a network without LoRA gets that of the file.

        Raises:
            ValueError: where the file is damaged or does not fit the network and its LoRA.
        """
        import h5py

        filepath = input_path(filepath)
        check_weights(filepath)
        with h5py.File(filepath, "r") as file:
            if set(file) != {"rank", "layers", "weights"}:
                raise ValueError(f"{filepath} holds no LoRA. Received: {', '.join(file)}")
            rank, places = int(file["rank"][()]), file["layers"][()].tolist()
            values = [file[f"weights/{number}"][()] for number in range(len(file["weights"]))]
        has, count = self._adapted(), len(self._adaptable())
        if has != (rank, places) if has[1] else max(places) >= count:
            raise ValueError(
                f"{filepath} holds LoRA of rank {rank} for the layers {places}. Received: a "
                f"network of {count} such layers, with rank {has[0]} for {has[1]}"
            )
        if not has[1]:
            self._adapt(rank, places)
        weights = self._lora_weights()
        shapes = [tuple(each.shape) for each in weights], [each.shape for each in values]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{filepath} is of another network. Expected weights of the shapes {shapes[0]}. "
                f"Received: {shapes[1]}"
            )
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value)

    def _adaptable(self):
        """Return the layers with kernels of their own that LoRA can adapt."""
        return [
            each
            for each in self._flatten_layers(include_self=False)
            if hasattr(each, "enable_lora") and each.weights
            # A network, or a layer of parts, hands it on to layers that are here themselves.
            if not isinstance(each, keras.Model)
            if getattr(each, "kernels_to_adapt", lambda: True)()
        ]

    def _adapt(self, rank, places):
        check_counts(rank=rank)
        layers = self._adaptable()
        if self._adapted()[1]:
            raise ValueError(f"LoRA can be enabled once. Received: {self.name}, which has it")
        if not self.trainable:
            self._frozen_before_lora = tuple(self._switched())
            self.trainable = True
        for weight in self.weights:  # not layers: saved, those would stay frozen
            weight.trainable = False
        for place in places:
            layers[place].enable_lora(rank)

    def _adapted(self):
        """Return the rank of LoRA and the places of its layers, `(None, [])` without."""
        places = enumerate(self._adaptable())
        found = {i: each.lora_rank for i, each in places if getattr(each, "lora_enabled", False)}
        return next(iter(found.values()), None), list(found)

    def _lora_weights(self):
        return [weight for weight in self.weights if "lora_" in weight.name]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, and the state of layers that no argument says.

        `switched` are the layers whose `trainable` is not the network's own; `quantized` those
        that hold integers. `Backbone` describes these by path. A path does not reach a layer inside
        a part that was given, and an automatic name changes it; an index among all layers stays.
        """
        config = {name: getattr(self, name) for name in ("name", "trainable", *self._kept)}
        config["dtype"] = keras.dtype_policies.serialize(self.dtype_policy)
        described = keras.saving.serialize_keras_object
        layers = self._flatten_layers(include_self=False)
        config["switched"] = self._switched()
        if self._frozen_before_lora is not None and self.trainable:
            # A saved network holds merged kernels, and no LoRA.
            config |= {"trainable": False, "switched": list(self._frozen_before_lora)}
        quantized = [
            [index, layer.quantization_mode, described(getattr(layer, "quantization_config", None))]
            for index, layer in enumerate(layers)
            if layer.quantization_mode is not None
        ]
        return {**config, "quantized": quantized} if quantized else config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Network":
        def restored(value):
            if isinstance(value, list):
                return [restored(each) for each in value]
            is_object = isinstance(value, dict) and {"class_name", "config"} <= set(value)
            return keras.saving.deserialize_keras_object(value) if is_object else value

        arguments = {name: restored(value) for name, value in config.items()}
        quantized, switched = arguments.pop("quantized", ()), arguments.pop("switched", None)
        network = cls(**arguments)
        layers = network._flatten_layers(include_self=False)
        for index, mode, settings in quantized:
            if layers[index].quantization_mode is None:  # a part of its own policy has it already
                options = {} if settings is None else {"config": settings}
                layers[index].quantize(mode, **options)
        network.freeze_parts()
        if switched is not None:
            network._switch(set(switched))
        return network

    def freeze_parts(self) -> None:
        """Freeze all layers of a network that is made with `trainable=False`, once.

        They were made after the argument was read. Not by `self.trainable = False`: TensorFlow
        ignores an assignment that changes nothing.
        """
        if self._parts_are_frozen:
            return
        self._parts_are_frozen = True
        if not self.trainable:
            for each in (*self._flatten_layers(include_self=False), *self.weights):
                each.trainable = False

    def _switched(self) -> list[int]:
        """Return the indices of the layers whose `trainable` is not the network's own."""
        layers = self._flatten_layers(include_self=False)
        return [i for i, layer in enumerate(layers) if layer.trainable != self.trainable]

    def _switch(self, switched: set[int]) -> None:
        """Give each layer its own `trainable`: that of the network, or of `switched` the other.

        An assignment reaches the layers below, too, and a layer may be part of several.
        """
        layers = self._flatten_layers(include_self=False)
        wanted = [self.trainable != (index in switched) for index in range(len(layers))]
        for _ in layers:  # once for each level, at most
            wrong = [index for index, each in enumerate(layers) if each.trainable != wanted[index]]
            if not wrong:
                return
            for index in wrong:
                layers[index].trainable = wanted[index]


class Part(KeepsArguments, keras.layers.Layer):
    """A layer whose configuration is what it keeps of its constructor: values or layers.

    Its layers are built by its first call, as Keras does it: no file needs to hold their shapes.
    """

    def build(self, input_shape=None):
        """Leave it to the call: without this, Keras would trace every level on its own first."""

    def get_config(self):
        config, serialize = super().get_config(), keras.saving.serialize_keras_object
        return config | {name: serialize(config[name]) for name in self._kept}

    @classmethod
    def from_config(cls, config):
        revive = keras.saving.deserialize_keras_object
        return cls(**{k: v if k == "dtype" else revive(v) for k, v in config.items()})

    def get_build_config(self):
        return None


def _with_sizes(value: Any, sizes: Mapping[str, tuple[int, int]]) -> Any:
    """Return a configuration with new sizes: by name, at any depth, where the old one stands."""
    if isinstance(value, (list, tuple)):
        return [_with_sizes(each, sizes) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: sizes[name][1]
        if name in sizes and type(each) is int and each == sizes[name][0]
        else _with_sizes(each, sizes)
        for name, each in value.items()
    }


def with_matches(vectors: Any, ids: Any, other: Any) -> Any:
    """Join a number to the vectors of words: 1 where another text has the very word, else 0.

    Padding and unknown words have 0.

    Args:
        vectors: `(B, S, E)`.
        ids: of these words, `(B, S)`.
        other: ids of the other text, `(B, T)`.

    Returns:
        Vectors `(B, S, E + 1)`.

    Reference:
        - [Chen et al., 2017](https://arxiv.org/abs/1704.00051), section 3.2 ("exact match")
    """
    has = ops.any(ops.equal(ops.expand_dims(ids, 2), ops.expand_dims(other, 1)), axis=2)
    is_known = ops.logical_and(ops.not_equal(ids, PAD_ID), ops.not_equal(ids, UNK_ID))
    matches = ops.cast(ops.logical_and(has, is_known), vectors.dtype)
    return ops.concatenate([vectors, ops.expand_dims(matches, 2)], axis=2)


@keras.saving.register_keras_serializable("keras_attention.common")
class OrthogonalOf16Bits(keras.initializers.Orthogonal):
    """`Orthogonal` for 16 bits, drawn in float32: no backend decomposes a matrix of bfloat16."""

    def __call__(self, shape, dtype=None):
        return ops.cast(super().__call__(shape, "float32"), dtype)


def recurrent_start(dtype: Any) -> Any:
    """Return the initializer of recurrent kernels for a dtype policy: Keras' own, where it can."""
    is_wide = keras.dtype_policies.get(dtype).variable_dtype in ("float32", "float64")
    return "orthogonal" if is_wide else OrthogonalOf16Bits()


def bidirectional_gru(units: int, name: str, dtype: Any, **options: Any) -> keras.layers.Layer:
    """Return a GRU that reads both ways, with `units` each way, and gives the states of all steps.

    Without cuDNN, which refuses padding between words, and a row of padding alone.
    """
    options |= {"return_sequences": True, "use_cudnn": False, "dtype": dtype}
    options["recurrent_initializer"] = recurrent_start(dtype)
    gru = keras.layers.GRU(units, **options)
    both = keras.layers.Bidirectional(gru, name=name, dtype=dtype)
    # Kept: while a file is read, Keras takes a layer at the same address for this one.
    vars(both)["template"] = gru
    return both


def check_ids(inputs: Any, name: str) -> None:
    """Raise a ValueError where a network or task called `name` is fed strings in place of ids."""
    for each in keras.tree.flatten(inputs):
        dtype = getattr(each, "dtype", None)
        is_text = isinstance(each, (str, bytes)) or getattr(dtype, "kind", "") in ("U", "S", "O")
        if is_text or "string" in str(dtype):
            raise ValueError(
                f"{name} reads ids, which the preprocessor of a task makes of texts. "
                f"Received: {each if isinstance(each, str) else dtype}"
            )


def without_unwritable(logits):
    """Return logits `(..., V)` in float32, those of padding and the start token minus infinity."""
    ids = ops.arange(logits.shape[-1])
    unwritable = ops.logical_or(ops.equal(ids, PAD_ID), ops.equal(ids, START_ID))
    return ops.where(unwritable, float("-inf"), ops.cast(logits, "float32"))


_kept_apart: list[bool] = []


def keep_functional_apart() -> None:
    """Let the backbones of KerasHub alone be functional models.

    When Keras first makes a functional model of a class, it changes the bases of the classes below
    `keras.Model`, here of `Backbone` itself: networks that are written as classes could no longer
    be made (keras-team/keras#17270; KerasHub resets the base of its tasks for the same reason).
    With the functional class among the bases of KerasHub's own backbones, which changes nothing for
    them, Keras leaves `Backbone` as it is.
    """
    base = keras_hub.models.Backbone
    if base.__bases__ == (keras.Model,) and _kept_apart:
        return
    _kept_apart.append(True)
    inputs = keras.Input((1,))
    functional = type(keras.Model(inputs, keras.layers.Identity()(inputs)))
    for each in base.__subclasses__():
        if each is not Network and functional not in each.__bases__:
            each.__bases__ = (*each.__bases__, functional)
    base.__bases__ = (keras.Model,)


keep_functional_apart()
