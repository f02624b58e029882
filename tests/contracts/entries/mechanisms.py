"""The recurrent mechanisms."""

import keras
from keras import ops

from keras_attention.layers import (
    AttentionMechanism,
    BahdanauAttention,
    LocalAttention,
    LuongAttention,
    ScoredAttention,
)
from keras_attention.ops.types import at_least_float32
from tests.contracts import oracles
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, Mechanism

UNITS, QUERY = 17, 11


@keras.saving.register_keras_serializable("keras_attention_tests")
class SquashedAttention(ScoredAttention):
    """A mechanism of a user's own, by the two methods that the base class asks for."""

    def build_score(self, query_size, key_size):
        self.projection = self.add_weight((key_size, query_size), name="projection")

    def project_key(self, key):
        return ops.tanh(ops.matmul(key, self.cast(self.projection)))

    def score(self, query, key, positions):
        return ops.matmul(query, ops.transpose(key, (0, 2, 1)))


@keras.saving.register_keras_serializable("keras_attention_tests")
class CosineAttention(ScoredAttention):
    """A user's mechanism whose queries are projected too, by no weight."""

    def project_query(self, query):
        # In float16 the epsilon of `ops.normalize` is 0.
        return ops.cast(ops.normalize(at_least_float32(query), axis=-1), query.dtype)

    def project_key(self, key):
        return ops.cast(ops.normalize(at_least_float32(key), axis=-1), key.dtype)

    def score(self, query, key, positions):
        return ops.matmul(query, ops.swapaxes(key, 1, 2))


def additive(query_size, key_size=VALUE_SIZE, units=UNITS, use_bias=False):
    """Pinned weights of the additive score."""
    weights = {"query_kernel": (query_size, units), "key_kernel": (key_size, units)}
    weights |= {"bias": (units,)} if use_bias else {}
    return weights | {"score_vector": (units,)}


def position(query_size=QUERY, units=UNITS):
    """Pinned weights of a predicted position."""
    return {"position_kernel": (query_size, units), "position_vector": (units,)}


# Each score: its options, its pinned weights, and the query and key sizes that it is tried with.
SCORES = {
    "dot": ({"score": "dot"}, {}, {"query_size": VALUE_SIZE}),
    "general": ({"score": "general"}, {"score_kernel": (QUERY, 5)}, {"key_size": 5}),
    "concat": ({"score": "concat", "units": UNITS}, additive(QUERY), {}),
    "location": ({"score": "location", "max_length": 6}, {"location_kernel": (QUERY, 6)}, {}),
}


def luong(score):
    """The case of one of Luong's scores."""
    options, weights, sizes = SCORES[score]
    return Mechanism(f"luong-{score}", LuongAttention, options, oracles.luong, weights, **sizes)


def local(alignment, score, half_width=2):
    """The case of one alignment with one score."""
    options, weights, sizes = SCORES[score]
    options = options | {"alignment": alignment, "half_width": half_width}
    if alignment == "predictive":
        options["units"] = UNITS
        weights = weights | position(sizes.get("query_size", QUERY))
    name = f"local-{alignment[0]}-{score}"
    return Mechanism(name, LocalAttention, options, oracles.local, weights, **sizes)


ENTRIES = {
    AttentionMechanism: Entry(
        cases=[
            Mechanism(
                "own", SquashedAttention, {}, oracles.squashed, {"projection": (VALUE_SIZE, QUERY)}
            )
        ],
        configs=[lambda: {"dropout": 0.3, "seed": 5}],
        refused=[{"dropout": 1.0}, {"dropout": "a"}, {"dropout": float("nan")}, {"seed": "nope"}],
    ),
    ScoredAttention: Entry(
        cases=[
            Mechanism("own-cosine", CosineAttention, {}, oracles.cosine, {}, query_size=VALUE_SIZE)
        ],
        configs=[lambda: {"dropout": 0.3, "seed": 5}],
        refused=[{"dropout": 1.0}, {"dropout": "a"}, {"dropout": float("nan")}, {"seed": "nope"}],
    ),
    BahdanauAttention: Entry(
        cases=[
            Mechanism(
                "bahdanau", BahdanauAttention, {"units": UNITS}, oracles.bahdanau, additive(QUERY)
            ),
            Mechanism(
                "bahdanau-bias-keys",
                BahdanauAttention,
                {"units": UNITS, "use_bias": True},
                oracles.bahdanau,
                additive(QUERY, 5, use_bias=True),
                key_size=5,
            ),
        ],
        configs=[
            lambda: {
                "units": 7,
                "use_bias": True,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "score_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
                "bias_initializer": keras.initializers.Constant(0.5),
                "dropout": 0.3,
                "seed": 5,
            }
        ],
        refused=[{"units": 0}, {"units": True}, {"units": 7, "use_bias": "no"}],
    ),
    LuongAttention: Entry(
        cases=[luong(score) for score in SCORES],
        configs=[
            lambda: {
                "score": "concat",
                "units": 7,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "dropout": 0.3,
                "seed": 5,
            },
            lambda: {"score": "location", "max_length": 19},
        ],
        refused=[
            {"score": "cosine"},
            {"score": "concat"},
            {"score": "concat", "units": -1},
            {"score": "location"},
            {"score": "dot", "units": 7},
            {"score": "general", "max_length": 7},
        ],
    ),
    LocalAttention: Entry(
        cases=[local(a, score) for a in ("monotonic", "predictive") for score in SCORES],
        configs=[
            lambda: {
                "half_width": 3,
                "alignment": "predictive",
                "score": "concat",
                "units": 7,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "dropout": 0.3,
                "seed": 5,
            },
            lambda: {"score": "location", "max_length": 19},
        ],
        refused=[
            {"half_width": 0},
            {"half_width": 1.5},
            {"alignment": "diagonal"},
            {"score": "concat"},
            {"score": "location"},
        ],
    ),
}
