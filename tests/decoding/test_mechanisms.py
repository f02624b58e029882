"""Beam search over decoders whose attention remembers: the state follows the hypotheses.

Every hypothesis that comes back is run again alone, through the decoder's whole-sequence call: were
coverage, sums or earlier states left behind when beams are reordered, its score would be another.
"""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import beam_search
from keras_attention.layers import (
    AttentionDecoder,
    CoverageAttention,
    HierarchicalAttention,
    IntraDecoderAttention,
    TemporalAttention,
)
from tests.contracts.backend import random, to_numpy
from tests.contracts.kinds import randomise
from tests.decoding.running import MODES, prepare

BATCH, LENGTH, SIZE, VOCABULARY, LONGEST = 2, 6, 5, 4, 7
START, END = 1, 0
MASK = np.arange(LENGTH) < np.array([6, 4])[:, None]
MECHANISMS = {
    "coverage": lambda: CoverageAttention(7, use_bias=True),
    "temporal": TemporalAttention,
    "hierarchical": lambda: HierarchicalAttention(CoverageAttention(7), TemporalAttention()),
}


class Writer:
    """A decoder with one of the mechanisms, and intra-decoder attention beside it, over words."""

    def __init__(self, name, longest=LONGEST):
        self.longest = longest
        self.embed = keras.layers.Embedding(VOCABULARY, 3)
        self.decoder = AttentionDecoder(keras.layers.GRUCell(SIZE), MECHANISMS[name]())
        self.intra, self.readout = IntraDecoderAttention(), keras.layers.Dense(VOCABULARY)
        self.is_hierarchical = name == "hierarchical"
        self.value, self.mask = self.document()
        self.log_probabilities(np.ones((BATCH, 2), "int32"))
        for seed, layer in enumerate((self.embed, self.decoder, self.intra, self.readout)):
            randomise(layer, seed)
            for weight in layer.trainable_weights:
                weight.assign(2.5 * weight)

    def document(self):
        """A memory and its mask; for words in sentences, dictionaries of both."""
        value = random(1, BATCH, LENGTH, SIZE)
        if not self.is_hierarchical:
            return ops.convert_to_tensor(value), ops.convert_to_tensor(MASK)
        words = {"words": value.reshape(BATCH, 2, 3, SIZE), "sentences": random(2, BATCH, 2, 3)}
        masks = {"words": MASK.reshape(BATCH, 2, 3), "sentences": MASK[:, ::3]}
        tensors = keras.tree.map_structure(ops.convert_to_tensor, (words, masks))
        return tensors

    def log_probabilities(self, inputs, example=None):
        """Log probabilities and weights of whole sequences of input ids."""
        value, mask = self.value, self.mask
        if example is not None:
            rows = np.full(len(inputs), example)
            value, mask = keras.tree.map_structure(
                lambda x: ops.take(x, rows, axis=0), (value, mask)
            )
        outputs, scores = self.decoder(
            self.embed(inputs), value, value_mask=mask, return_attention_scores=True
        )
        read = ops.concatenate([outputs, self.intra(outputs)], axis=2)
        scores = ops.reshape(scores, (len(inputs), -1, LENGTH))
        return ops.log_softmax(self.readout(read), axis=2), scores

    def state(self):
        """What the search carries."""
        prepared = self.decoder.prepare_memory(self.value, self.mask)
        room = self.intra.prepare_memory(ops.zeros((BATCH, self.longest, SIZE)))
        return {
            "memory": prepared,
            "room": room,
            "decoder": self.decoder.initial_state(prepared),
            "own": self.intra.initial_state(room),
            "scores": ops.zeros((BATCH, LENGTH)),
        }

    def step(self, tokens, state, index):
        """Logits of one step."""
        output, scores, decoder = self.decoder.step(
            self.embed(tokens), state["memory"], state["decoder"]
        )
        context, _, own = self.intra.step(output, state["room"], state["own"])
        logits = self.readout(ops.concatenate([output, context], axis=1))
        after = {"decoder": decoder, "own": own, "scores": ops.reshape(scores, (-1, LENGTH))}
        return logits, {**state, **after}

    def search(self, state, **options):
        """Search with this model."""
        return beam_search(
            self.step,
            state,
            start_id=START,
            end_id=END,
            max_length=self.longest,
            attention_key="scores",
            constant_keys=("memory", "room"),
            **options,
        )


def inputs_of(tokens):
    """What a decoder reads to write these tokens."""
    return np.concatenate([[START], tokens[:-1]]).astype("int32")[None]


# To compile takes seconds, and the state is carried alike: the slow tests compile the search.
@pytest.mark.by_default("coverage-eager", "temporal-eager")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_each_hypothesis_scores_what_it_scores_alone(name, mode):
    writer = Writer(name)
    state = writer.state()
    search = prepare(lambda state: writer.search(state, beam_size=3, n_best=3, min_length=5), mode)
    result = search(state)
    tokens, scores, lengths, attention = (
        to_numpy(part)
        for part in (result.tokens, result.log_probabilities, result.lengths, result.attention)
    )
    for b, k in np.ndindex(BATCH, 3):
        length = lengths[b, k]
        # Of the places after its end, too: JAX compiles one length.
        log_p, weights = (
            to_numpy(each)[0, :length]
            for each in writer.log_probabilities(inputs_of(tokens[b, k]), example=b)
        )
        alone = log_p[np.arange(length), tokens[b, k, :length]]
        np.testing.assert_allclose(scores[b, k], alone.sum(), atol=1e-4)
        np.testing.assert_allclose(attention[b, k, :length], weights, atol=1e-5)
        assert length >= 5  # a state that is carried far


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_wide_search_finds_what_enumeration_finds(name):
    longest = 3
    writer = Writer(name, longest)
    result = writer.search(writer.state(), beam_size=VOCABULARY**longest, n_best=4)
    for b in range(BATCH):
        found = {}
        for tokens in itertools.product(range(VOCABULARY), repeat=longest):
            end = tokens.index(END) + 1 if END in tokens else longest
            found.setdefault(tokens[:end])
        rows = np.array([(*tokens, *[END] * (longest - len(tokens))) for tokens in found])
        inputs = np.concatenate([np.full((len(rows), 1), START), rows[:, :-1]], axis=1)
        log_p = to_numpy(writer.log_probabilities(inputs.astype("int32"), example=b)[0])
        each = np.take_along_axis(log_p, rows[:, :, None], axis=2)[:, :, 0]
        real = np.arange(longest) < np.array([len(tokens) for tokens in found])[:, None]
        totals = np.sum(np.where(real, each, 0), axis=1)
        best = np.argsort(-totals)[:4]
        np.testing.assert_allclose(to_numpy(result.scores)[b], totals[best], atol=1e-4)
        np.testing.assert_array_equal(to_numpy(result.tokens)[b], rows[best])


def test_without_coverage_the_scores_would_be_others():
    """The check above has teeth: a coverage that stays at zero gives another score."""
    writer = Writer("coverage")
    written = np.array([2, 3, 2, 3])
    log_p = to_numpy(writer.log_probabilities(inputs_of(written), example=0)[0])
    writer.decoder.attention.coverage_vector.assign(np.zeros(7))
    other = to_numpy(writer.log_probabilities(inputs_of(written), example=0)[0])
    assert np.abs(log_p - other).max() > 1e-2


def test_a_decoder_with_no_source_reads_its_own_past():
    decoder = AttentionDecoder(keras.layers.GRUCell(SIZE), IntraDecoderAttention())
    inputs, room = random(5, BATCH, 4, 3), np.zeros((BATCH, 6, SIZE), "float32")
    outputs, contexts = decoder(inputs, room, return_context=True)
    before = np.pad(to_numpy(outputs)[:, :-1], ((0, 0), (1, 0), (0, 0)))  # each step's query
    np.testing.assert_allclose(to_numpy(contexts), to_numpy(decoder.attention(before)), atol=1e-5)
