"""Recurrent nets with attention before the state."""

import keras
import numpy as np

from keras_attention.layers import InnerAttentionGRU, InnerAttentionGRUCell
from tests.contracts import oracles_inner_attention as oracle
from tests.contracts.backend import random
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, value_mask
from tests.contracts.plain import Plain

UNITS, QUERY = 5, 11


def gru_arrays(seed, batch, steps, lengths):
    """Answers of unequal lengths, and a question for each; short ones, as each word is a step."""
    lengths = [(length + 1) // 2 for length in lengths]
    length = max(lengths)
    return {
        "inputs": random(seed + 1, batch, length, VALUE_SIZE),
        "query": random(seed + 2, batch, QUERY),
        "mask": value_mask(length, lengths),
    }


def without_query(seed, batch, steps, lengths):
    """Answers that ask for themselves."""
    arrays = gru_arrays(seed, batch, steps, lengths)
    return {name: array for name, array in arrays.items() if name != "query"}


def call_gru(layer, tensors, **options):
    """States, or the last one, and the weights where there are such."""
    if layer.cell.attention == "gate":
        return {"outputs": layer(**tensors, **options)}
    outputs, scores = layer(**tensors, return_attention_scores=True, **options)
    return {"outputs": outputs, "scores": scores}


def reference(weights, options, arrays):
    """The float64 results of the layer."""
    weights = {name.removeprefix("cell."): array for name, array in weights.items()}
    results = oracle.sequence(weights, options, arrays)
    state = results.pop("state")
    return results if options.get("return_sequences") else {**results, "outputs": state}


def weights_of(attention, query=QUERY, reset_after=None):
    """Pinned weights of a cell."""
    reset_after = attention != "gate" if reset_after is None else reset_after
    weights = {
        "kernel": (VALUE_SIZE, 3 * UNITS),
        "recurrent_kernel": (UNITS, 3 * UNITS),
        "bias": (2, 3 * UNITS) if reset_after else (3 * UNITS,),
    }
    if attention == "gate":
        return weights | {"query_kernel": (query, 2 * UNITS)}
    weights["attention_kernel"] = (query, VALUE_SIZE)
    if attention == "context":
        weights["recurrent_attention_kernel"] = (UNITS, VALUE_SIZE)
    return weights


def gru(name, attention, arrays=gru_arrays, query=QUERY, **options):
    """A case of the layer."""
    options = {"units": UNITS, "attention": attention, **options}
    weights = weights_of(attention, query, options.get("reset_after"))
    axes = {"inputs": "BSD", "query": "BQ", "mask": "BS", "scores": "BS"}
    axes["outputs"] = "BSU" if options.get("return_sequences") else "BU"
    if arrays is without_query:
        del axes["query"]
    if attention == "gate":
        del axes["scores"]
    return Plain(
        f"inner-{name}",
        InnerAttentionGRU,
        options,
        {f"cell.{path}": shape for path, shape in weights.items()},
        arrays,
        call_gru,
        reference,
        axes=axes,
        masks={"mask": "inputs"},
        alone=lambda x, mask: {"inputs": x, "mask": mask},
    )


@keras.saving.register_keras_serializable("tests")
class OneStep(InnerAttentionGRUCell):
    """The cell, whose call gives its output alone: what every cell gives beside is its state."""

    def call(self, inputs, states, query=None, training=False):
        return super().call(inputs, states, query, training)[0]


def cell_arrays(seed, batch, steps, lengths):
    """A word, a state and a question for each example."""
    return {
        "inputs": random(seed + 1, batch, VALUE_SIZE),
        "states": random(seed + 2, batch, UNITS, scale=0.5),
        "query": random(seed + 3, batch, QUERY),
    }


def one_step(weights, options, arrays):
    """The float64 result of the cell."""
    columns = (np.float64(arrays[name]) for name in ("inputs", "states", "query"))
    rows = [oracle.step(weights, options, *row)[0] for row in zip(*columns, strict=True)]
    return {"outputs": np.stack(rows)}


def cell(attention):
    """A case of the cell."""
    return Plain(
        f"inner-cell-{attention}",
        OneStep,
        {"units": UNITS, "attention": attention},
        weights_of(attention),
        cell_arrays,
        lambda layer, tensors, **options: {"outputs": layer(**tensors, **options)},
        one_step,
        axes={"inputs": "BD", "states": "BU", "query": "BQ", "outputs": "BU"},
    )


def config():
    """Options of both, each another than its default."""
    return {
        "units": 7,
        "attention": "context",
        "use_bias": False,
        "reset_after": False,
        "kernel_initializer": keras.initializers.HeNormal(seed=3),
        "recurrent_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
        "bias_initializer": keras.initializers.Constant(0.5),
        "attention_initializer": keras.initializers.HeNormal(seed=5),
        "kernel_regularizer": keras.regularizers.L2(0.1),
        "recurrent_regularizer": keras.regularizers.L1(0.1),
        "bias_regularizer": keras.regularizers.L2(0.2),
        "attention_regularizer": keras.regularizers.L2(0.3),
        "kernel_constraint": keras.constraints.MaxNorm(1),
        "recurrent_constraint": keras.constraints.MaxNorm(2),
        "bias_constraint": keras.constraints.MaxNorm(3),
        "attention_constraint": keras.constraints.NonNeg(),
        "occam": True,
        "occam_minimum": 0.25,
        "occam_initializer": keras.initializers.HeNormal(seed=6),
        "dropout": 0.25,
        "recurrent_dropout": 0.125,
        "seed": 5,
    }


REFUSED = [
    {"units": 0},
    {"units": 2.5},
    {"units": 7, "attention": "outer"},
    {"units": 7, "reset_after": True},
    {"units": 7, "occam": True},
    {"units": 7, "attention": "word", "occam": True, "occam_minimum": 0.0},
    {"units": 7, "dropout": 1.0},
    {"units": 7, "recurrent_dropout": -0.1},
]

ENTRIES = {
    InnerAttentionGRU: Entry(
        cases=[
            gru("context", "context", return_sequences=True),
            gru("gate", "gate", return_sequences=True),
            gru("context-reset-before-last", "context", reset_after=False),
            gru("word-own-mean-last", "word", without_query, VALUE_SIZE),
        ],
        configs=[
            lambda: {
                **config(),
                "return_sequences": True,
                "return_state": True,
                "go_backwards": True,
                "stateful": True,
                "unroll": True,
                "zero_output_for_mask": True,
                "use_cudnn": False,
            }
        ],
        refused=[*REFUSED, {"units": 7, "use_cudnn": "never"}],
    ),
    InnerAttentionGRUCell: Entry(
        cases=[cell("gate"), cell("context")],
        configs=[config],
        refused=REFUSED,
    ),
}
