"""The recurrent mechanisms."""

import functools

import keras
from keras import ops

from keras_attention.layers import (
    AttentionMechanism,
    BahdanauAttention,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    ScoredAttention,
)
from keras_attention.ops.types import at_least_float32
from tests.contracts import oracles, oracles_summarization
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


@keras.saving.register_keras_serializable("keras_attention_tests")
class MonotonicAdditive(MonotonicAttention):
    """Monotonic attention that makes its mechanism itself: each layer of a case has its own."""

    def __init__(self, mechanism=None, **kwargs):
        own = BahdanauAttention(UNITS, normalize=True, dtype=kwargs.get("dtype"))
        super().__init__(mechanism or own, **kwargs)


@keras.saving.register_keras_serializable("keras_attention_tests")
class MonotonicGeneral(MonotonicAttention):
    """The same over Luong's general score."""

    def __init__(self, mechanism=None, **kwargs):
        own = LuongAttention("general", scale=True, dtype=kwargs.get("dtype"))
        super().__init__(mechanism or own, **kwargs)


def additive(query_size, key_size=VALUE_SIZE, units=UNITS, use_bias=False, normalize=False):
    """Pinned weights of the additive score."""
    weights = {"query_kernel": (query_size, units), "key_kernel": (key_size, units)}
    weights |= {"bias": (units,)} if use_bias else {}
    weights |= {"score_vector": (units,)}
    return weights | ({"gain": ()} if normalize else {})


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


def monotonic(name, layer, weights, score, **options):
    """The case of monotonic attention over a mechanism."""
    weights = {f"mechanism.{key}": shape for key, shape in weights.items()}
    attend = oracles_summarization.Remembering(functools.partial(oracles.monotonic, score))
    return Mechanism(f"monotonic-{name}", layer, options, attend, {"energy_bias": ()} | weights)


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
            Mechanism(
                "bahdanau-normalized",
                BahdanauAttention,
                {"units": UNITS, "normalize": True},
                oracles.bahdanau,
                additive(QUERY, use_bias=True, normalize=True),
            ),
        ],
        configs=[
            lambda: {
                "units": 7,
                "use_bias": True,
                "normalize": True,
                "kernel_initializer": keras.initializers.HeNormal(seed=3),
                "score_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
                "bias_initializer": keras.initializers.Constant(0.5),
                "dropout": 0.3,
                "seed": 5,
            }
        ],
        refused=[
            {"units": 0},
            {"units": True},
            {"units": 7, "use_bias": "no"},
            {"units": 7, "normalize": 1},
        ],
    ),
    LuongAttention: Entry(
        cases=[
            *(luong(score) for score in SCORES),
            Mechanism(
                "luong-scaled",
                LuongAttention,
                {"score": "general", "scale": True},
                oracles.luong,
                {"score_kernel": (QUERY, VALUE_SIZE), "gain": ()},
            ),
        ],
        configs=[
            lambda: {
                "score": "concat",
                "units": 7,
                "scale": True,
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
            {"scale": None},
        ],
    ),
    MonotonicAttention: Entry(
        cases=[
            monotonic(
                "soft",
                MonotonicAdditive,
                additive(QUERY, use_bias=True, normalize=True),
                oracles._additive,
                mode="soft",
            ),
            monotonic(
                "general",
                MonotonicGeneral,
                {"score_kernel": (QUERY, VALUE_SIZE), "gain": ()},
                oracles._general,
                mode="soft",
            ),
        ],
        configs=[
            lambda: {
                "mechanism": LuongAttention("general"),
                "sigmoid_noise": 1.0,
                "mode": "hard",
                "energy_bias_initializer": keras.initializers.Constant(-4.0),
                "dropout": 0.3,
                "seed": 5,
            }
        ],
        refused=[
            {"mechanism": keras.layers.Attention()},
            {"mechanism": LocalAttention()},
            {"mechanism": MonotonicAttention(LuongAttention())},
            {"sigmoid_noise": -1.0},
            {"mode": "parallel"},
        ],
    ),
    LocalAttention: Entry(
        cases=[
            *(local(a, score) for a in ("monotonic", "predictive") for score in SCORES),
            Mechanism(
                "local-p-scaled",
                LocalAttention,
                {"alignment": "predictive", "score": "general", "scale": True},
                oracles.local,
                {"score_kernel": (QUERY, VALUE_SIZE), "gain": ()} | position(units=QUERY),
            ),
        ],
        configs=[
            lambda: {
                "half_width": 3,
                "alignment": "predictive",
                "scale": True,
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
