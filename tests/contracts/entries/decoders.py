"""The recurrent decoder, with cells and mechanisms of every sort."""

import keras
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    LocalAttention,
    LuongAttention,
)
from tests.contracts import oracles
from tests.contracts.entries.mechanisms import UNITS, additive, position
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, Decoder

CELL = 3


@keras.saving.register_keras_serializable("keras_attention_tests")
class LeakyCell(keras.layers.Layer):
    """A cell of a user's own: no `output_size`, no `training`, an output that is not its state."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight((input_shape[-1], self.units), name="kernel")

    def call(self, inputs, states):
        state = 0.7 * states[0] + 0.3 * ops.tanh(ops.matmul(inputs, self.kernel))
        return 2.0 * state, [state]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def gru(path="cell", units=CELL, width=2 + VALUE_SIZE, reset_after=True):
    """Pinned weights of a GRU cell."""
    return {
        f"{path}.kernel": (width, 3 * units),
        f"{path}.recurrent_kernel": (units, 3 * units),
        f"{path}.bias": (2, 3 * units) if reset_after else (3 * units,),
    }


def gated(path="cell", units=CELL, width=2 + VALUE_SIZE, gates=4):
    """Pinned weights of an LSTM cell, or with `gates=1` of a SimpleRNN cell."""
    return {
        f"{path}.kernel": (width, gates * units),
        f"{path}.recurrent_kernel": (units, gates * units),
        f"{path}.bias": (gates * units,),
    }


def within(weights):
    """Pinned weights of a decoder's mechanism."""
    return {f"attention.{name}": shape for name, shape in weights.items()}


def attentional(cell_size, size):
    """The pinned weight of the attentional vector."""
    return {"attentional_kernel": (VALUE_SIZE + cell_size, size)}


def decoder(name, make_cell, cells, mechanism, weights, **options):
    """A case of the decoder; `mechanism` is a class, its options and its oracle."""
    make, of_attention, attend = mechanism
    # Keras lists a layer's own weights before those of its parts.
    weights = dict(sorted(weights.items(), key=lambda item: "." in item[0]))
    return Decoder(
        f"decoder-{name}",
        AttentionDecoder,
        make_cell,
        cells,
        lambda: make(**of_attention),
        of_attention,
        attend,
        weights,
        options,
    )


ADDITIVE = (BahdanauAttention, {"units": UNITS, "use_bias": True}, oracles.bahdanau)
ADDITIVE_WEIGHTS = within(additive(CELL, use_bias=True))
GENERAL = (LuongAttention, {"score": "general"}, oracles.luong)
MONOTONIC = (
    LocalAttention,
    {"alignment": "monotonic", "score": "general", "half_width": 1},
    oracles.local,
)
PREDICTIVE = (
    LocalAttention,
    {"alignment": "predictive", "score": "concat", "units": UNITS, "half_width": 2},
    oracles.local,
)

DECODERS = [
    decoder(
        "previous-gru",
        lambda: keras.layers.GRUCell(CELL),
        [("gru", CELL, "cell")],
        ADDITIVE,
        gru() | ADDITIVE_WEIGHTS,
    ),
    decoder(
        "previous-gru-reset-before-vector",
        lambda: keras.layers.GRUCell(CELL, reset_after=False),
        [("gru", CELL, "cell")],
        ADDITIVE,
        gru(reset_after=False) | ADDITIVE_WEIGHTS | attentional(CELL, 7),
        attention_size=7,
    ),
    decoder(
        "previous-lstm-stack",
        lambda: [keras.layers.LSTMCell(5), keras.layers.LSTMCell(CELL)],
        [("lstm", 5, "cell.cells.0"), ("lstm", CELL, "cell.cells.1")],
        ADDITIVE,
        gated("cell.cells.0", 5) | gated("cell.cells.1", CELL, 5) | ADDITIVE_WEIGHTS,
    ),
    decoder(
        "previous-simple",
        lambda: keras.layers.SimpleRNNCell(CELL),
        [("simple", CELL, "cell")],
        MONOTONIC,
        gated(gates=1) | within({"score_kernel": (CELL, VALUE_SIZE)}),
    ),
    decoder(
        "previous-own-cell",
        lambda: LeakyCell(CELL),
        [("leaky", CELL, "cell")],
        GENERAL,
        {"cell.kernel": (2 + VALUE_SIZE, CELL)} | within({"score_kernel": (CELL, VALUE_SIZE)}),
    ),
    decoder(
        "current-lstm",
        lambda: keras.layers.LSTMCell(CELL),
        [("lstm", CELL, "cell")],
        GENERAL,
        gated(width=2) | within({"score_kernel": (CELL, VALUE_SIZE)}) | attentional(CELL, CELL),
        query="current",
    ),
    decoder(
        "current-lstm-feeding",
        lambda: keras.layers.LSTMCell(CELL),
        [("lstm", CELL, "cell")],
        GENERAL,
        gated(width=2 + 7) | within({"score_kernel": (CELL, VALUE_SIZE)}) | attentional(CELL, 7),
        query="current",
        attention_size=7,
        input_feeding=True,
    ),
    decoder(
        "current-gru-local-p-feeding",
        lambda: keras.layers.GRUCell(CELL),
        [("gru", CELL, "cell")],
        PREDICTIVE,
        gru(width=2 + CELL) | within(additive(CELL) | position(CELL)) | attentional(CELL, CELL),
        query="current",
        input_feeding=True,
    ),
    decoder(
        "current-mixed-stack-feeding",
        lambda: keras.layers.StackedRNNCells(
            [keras.layers.GRUCell(5), keras.layers.LSTMCell(CELL), LeakyCell(11)]
        ),
        [("gru", 5, "cell.cells.0"), ("lstm", CELL, "cell.cells.1"), ("leaky", 11, "cell.cells.2")],
        MONOTONIC,
        gru("cell.cells.0", 5, 2 + 11)
        | gated("cell.cells.1", CELL, 5)
        | {"cell.cells.2.kernel": (CELL, 11)}
        | within({"score_kernel": (11, VALUE_SIZE)})
        | attentional(11, 11),
        query="current",
        input_feeding=True,
    ),
]


@keras.saving.register_keras_serializable("keras_attention_tests")
def halved(outputs):
    """The next inputs of scheduled sampling."""
    return outputs / 2


PARTS = {"cell": keras.layers.GRUCell(3), "attention": BahdanauAttention(3)}

ENTRIES = {
    AttentionDecoder: Entry(
        cases=DECODERS,
        configs=[
            lambda: {
                "cell": keras.layers.StackedRNNCells(
                    [keras.layers.GRUCell(5, dropout=0.2), LeakyCell(CELL)]
                ),
                "attention": LocalAttention(3, "predictive", score="concat", units=7),
                "query": "current",
                "attention_size": 7,
                "input_feeding": True,
                "attention_activation": "relu",
            },
            lambda: {
                **PARTS,
                "query": "current",
                "attention_activation": "linear",
                "sampling_probability": 0.25,
                "next_inputs": halved,
                "seed": 5,
            },
        ],
        refused=[
            {"cell": keras.layers.Dense(3), "attention": BahdanauAttention(3)},
            {"cell": keras.layers.GRUCell(3), "attention": keras.layers.Attention()},
            {**PARTS, "query": "next"},
            {**PARTS, "attention_size": 0},
            {**PARTS, "sampling_probability": -0.1},
            {**PARTS, "next_inputs": halved},
            {**PARTS, "query": "previous", "input_feeding": True},
            {**PARTS, "query": "previous", "attention_activation": None},
        ],
    ),
}
