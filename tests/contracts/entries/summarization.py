"""The layers of summarisation: mechanisms that remember, a document's words, and the pointer."""

from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

from keras_attention.layers import (
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    IntraDecoderAttention,
    LuongAttention,
    PointerGenerator,
    TemporalAttention,
)
from tests.contracts import oracles_summarization as oracles
from tests.contracts.backend import random
from tests.contracts.entries.mechanisms import additive
from tests.contracts.entry import Entry
from tests.contracts.kinds import VALUE_SIZE, Mechanism, value_mask
from tests.contracts.plain import Plain

UNITS, QUERY, SENTENCE = 17, 11, 5
KERNEL = keras.initializers.HeNormal


def coverage_weights(**options):
    """Pinned weights of coverage."""
    return additive(QUERY, **options) | {"coverage_vector": (UNITS,)}


# Intra-decoder attention: one sequence is queries and memory.


def states(seed, batch, steps, lengths):
    """A decoder's states, of unequal lengths; the masks of queries and memory are one."""
    length = max(lengths)
    mask = value_mask(length, lengths)
    query = random(seed + 1, batch, length, VALUE_SIZE, scale=0.7)
    return {"query": query, "query_mask": mask, "value_mask": mask, "mask": mask}


def call_intra(layer, tensors, **options):
    """Contexts and weights."""
    context, scores = layer(**tensors, return_attention_scores=True, **options)
    return {"outputs": context, "scores": scores}


def intra_steps(layer, tensors):
    """The same one state at a time, the earlier ones in the state."""
    query = tensors["query"]
    memory = layer.prepare_memory(ops.zeros_like(query), mask=tensors.get("value_mask"))
    return stepped(layer, memory, query)


def stepped(layer, memory, query):
    """Contexts and weights of one query at a time, and what search carries before and after."""
    state = layer.initial_state(memory)
    found, carried = [], [(memory, state)]
    for t in range(query.shape[1]):
        context, scores, state = layer.step(query[:, t], memory, state)
        found.append((context, scores))
        carried.append((memory, state))
    contexts, scores = (ops.stack(part, 1) for part in zip(*found, strict=True))
    return {"outputs": contexts, "scores": scores}, carried


# Hierarchical attention: words in sentences.


def document(seed, batch, steps, lengths):
    """Three sentences of unequal lengths in each example; some sentences are padding."""
    width, count = max(lengths), 3
    sentence_mask = np.arange(count) < np.array([3, 2, 1])[np.arange(batch) % 3, None]
    query_mask = (
        np.arange(steps) < np.array([steps, max(steps - 2, 1), 1])[np.arange(batch) % 3, None]
    )
    word_mask = np.stack([value_mask(width, np.roll(lengths, n)) for n in range(count)], axis=1)
    return {
        "query": random(seed + 1, batch, steps, QUERY),
        "words": random(seed + 2, batch, count, width, VALUE_SIZE),
        "sentences": random(seed + 3, batch, count, SENTENCE),
        "word_mask": word_mask & sentence_mask[:, :, None],
        "sentence_mask": sentence_mask,
        "query_mask": query_mask,
        "mask": query_mask,
    }


def of_one_sequence(x, mask):
    """One input alone is one sentence; its vector is the mean of its words."""
    real = mask[:, :, None]
    mean = np.sum(np.where(real, x, 0), axis=1) / np.maximum(real.sum(axis=1), 1)
    return {
        "query": x,
        "words": x[:, None],
        "sentences": mean[:, None].astype("float32"),
        "word_mask": mask[:, None],
        "query_mask": mask,
    }


def call_hierarchical(layer, tensors, **options):
    """Contexts and weights."""
    context, scores = layer(**tensors, return_attention_scores=True, **options)
    return {"outputs": context, "scores": scores}


def hierarchical_steps(layer, tensors):
    """The same one query at a time."""
    document = [tensors.get(name) for name in ("words", "sentences", "word_mask", "sentence_mask")]
    return stepped(layer, layer.prepare_memory(*document), tensors["query"])


@dataclass(frozen=True)
class OfParts(Plain):
    """A case whose options make parts: each layer gets its own."""

    def new(self):
        """The layer, not built yet."""
        return self.layer(**{name: make() for name, make in self.options.items()})


def hierarchical(name, of_words, of_sentences):
    """A case of two mechanisms: what makes each, its weights, its oracle."""
    parts = {"word_attention": of_words, "sentence_attention": of_sentences}
    return OfParts(
        name,
        HierarchicalAttention,
        {part: make for part, (make, _, _) in parts.items()},
        {
            f"{part}.{weight}": shape
            for part, (_, weights, _) in parts.items()
            for weight, shape in weights.items()
        },
        document,
        call_hierarchical,
        lambda weights, options, arrays: oracles.hierarchical(
            of_words[2], of_sentences[2], weights, arrays
        ),
        axes={
            "query": "BTQ",
            "words": "BNWD",
            "sentences": "BNE",
            "word_mask": "BNW",
            "sentence_mask": "BN",
            "query_mask": "BT",
            "mask": "BT",
            "outputs": "BTD",
            "scores": "BTNW",
        },
        masks={
            "word_mask": "words",
            "sentence_mask": "sentences",
            "query_mask": "query",
            "mask": "query",
        },
        steps=hierarchical_steps,
        alone=of_one_sequence,
    )


# The pointer-generator: ids beside scores.

VOCABULARY = 2  # small log probabilities: large ones overflow a half in the test's dense layer


def mixture(seed, batch, steps, lengths):
    """Logits, weights that sum to 1 over each source, its words' ids, and what the gate reads."""
    length = max(lengths)
    scores = np.exp(random(seed + 2, batch, steps, length))
    scores = scores * value_mask(length, lengths)[:, None]
    ids = np.random.default_rng(seed + 3).integers(0, VOCABULARY, (batch, length))
    return {
        "logits": random(seed + 1, batch, steps, VOCABULARY),
        "scores": (scores / scores.sum(axis=2, keepdims=True)).astype("float32"),
        "source_ids": ids.astype("int32"),
        "context": random(seed + 4, batch, steps, VALUE_SIZE),
        "state": random(seed + 5, batch, steps, QUERY),
        "inputs": random(seed + 6, batch, steps, SENTENCE),
        "mask": value_mask(steps, tuple(max(1, steps - place) for place in range(batch))),
    }


def call_pointer(layer, tensors, **options):
    """Log probabilities and the gate."""
    log_p, p_gen = layer(**tensors, return_p_gen=True, **options)
    return {"outputs": log_p, "p_gen": p_gen}


def pointer_steps(layer, tensors):
    """The same one step at a time; nothing is carried."""
    found = []
    for t in range(tensors["logits"].shape[1]):
        at = {key: x if key == "source_ids" else x[:, t] for key, x in tensors.items()}
        at.pop("mask", None)  # a step has none
        found.append(layer.step(**at, return_p_gen=True))
    log_p, p_gen = (ops.stack(part, 1) for part in zip(*found, strict=True))
    return {"outputs": log_p, "p_gen": p_gen}, []


BILINEAR = [lambda: {"kernel_initializer": KERNEL(seed=3), "dropout": 0.3, "seed": 5}]

ENTRIES = {
    CoverageAttention: Entry(
        cases=[
            Mechanism(
                "coverage",
                CoverageAttention,
                {"units": UNITS},
                oracles.Remembering(oracles.coverage),
                coverage_weights(),
            ),
            Mechanism(
                "coverage-bias-keys",
                CoverageAttention,
                {"units": UNITS, "normalize": True, "loss_weight": 1.0},
                oracles.Remembering(oracles.coverage),
                coverage_weights(key_size=5, use_bias=True, normalize=True),
                key_size=5,
            ),
        ],
        configs=[
            lambda: {
                "units": 7,
                "loss_weight": 0.5,
                "loss_start": 100,
                "use_bias": True,
                "normalize": True,
                "kernel_initializer": KERNEL(seed=3),
                "score_initializer": keras.initializers.RandomNormal(0.0, 0.3, seed=4),
                "bias_initializer": keras.initializers.Constant(0.5),
                "coverage_initializer": keras.initializers.RandomNormal(0.0, 0.2, seed=6),
                "dropout": 0.3,
                "seed": 5,
            }
        ],
        refused=[{"units": 0}, {"units": 7, "loss_weight": -1}, {"units": 7, "loss_start": 0.5}],
    ),
    TemporalAttention: Entry(
        cases=[
            Mechanism(
                "temporal",
                TemporalAttention,
                {},
                oracles.Remembering(oracles.temporal),
                {"score_kernel": (QUERY, 5)},
                key_size=5,
            )
        ],
        configs=BILINEAR,
        refused=[{"dropout": 1.0}],
    ),
    IntraDecoderAttention: Entry(
        cases=[
            Plain(
                "intra-decoder",
                IntraDecoderAttention,
                {},
                {"score_kernel": (VALUE_SIZE, VALUE_SIZE)},
                states,
                call_intra,
                oracles.intra_decoder,
                axes={
                    "query": "BSD",
                    "query_mask": "BS",
                    "value_mask": "BS",
                    "mask": "BS",
                    "outputs": "BSD",
                    "scores": "BSS",
                },
                masks=dict.fromkeys(("query_mask", "value_mask", "mask"), "query"),
                steps=intra_steps,
            )
        ],
        configs=BILINEAR,
        refused=[{"dropout": -0.1}],
    ),
    HierarchicalAttention: Entry(
        cases=[
            hierarchical(
                "hierarchical",
                (lambda: BahdanauAttention(UNITS), additive(QUERY), oracles.bahdanau),
                (
                    lambda: LuongAttention("general"),
                    {"score_kernel": (QUERY, SENTENCE)},
                    oracles.general,
                ),
            ),
            hierarchical(
                "hierarchical-remembering",
                (lambda: CoverageAttention(UNITS), coverage_weights(), oracles.coverage),
                (TemporalAttention, {"score_kernel": (QUERY, SENTENCE)}, oracles.temporal),
            ),
        ],
        configs=[
            lambda: {
                "word_attention": BahdanauAttention(7),
                "sentence_attention": TemporalAttention(),
                "dropout": 0.3,
                "seed": 5,
            }
        ],
        refused=[
            {"word_attention": keras.layers.Attention(), "sentence_attention": TemporalAttention()},
            {"word_attention": TemporalAttention(), "sentence_attention": None},
        ],
    ),
    PointerGenerator: Entry(
        cases=[
            Plain(
                "pointer-generator",
                PointerGenerator,
                {},
                {
                    "context_vector": (VALUE_SIZE,),
                    "state_vector": (QUERY,),
                    "input_vector": (SENTENCE,),
                    "bias": (),
                },
                mixture,
                call_pointer,
                lambda weights, options, arrays: oracles.pointer_generator(weights, 0, arrays),
                axes={
                    "logits": "BTV",
                    "scores": "BTS",
                    "source_ids": "BS",
                    "context": "BTD",
                    "state": "BTQ",
                    "inputs": "BTE",
                    "mask": "BT",
                    "outputs": "BTX",
                    "p_gen": "BT",
                },
                masks={"mask": "logits"},
                steps=pointer_steps,
            )
        ],
        configs=[
            lambda: {
                "kernel_initializer": KERNEL(seed=3),
                "bias_initializer": keras.initializers.Constant(0.5),
            }
        ],
    ),
}
