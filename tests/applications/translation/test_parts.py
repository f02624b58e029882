"""What translation networks are put together from: layers given, configurations, refusals."""

import types

import keras
import numpy as np
import pytest

from keras_attention import BahdanauAttention
from keras_attention.applications.translation import (
    Luong,
    ModelConfig,
    RNNEncDec,
    RNNSearch,
    Transformer,
    build_model,
)
from keras_attention.applications.translation.networks.layers import WordLogits
from keras_attention.applications.translation.results import whole_words
from tests.applications.translation_runs import randomize

B, S, T, SOURCE, TARGET, E, U, A, R = 3, 5, 7, 23, 29, 7, 11, 13, 5
SIZES = {"embedding_size": E, "units": U}
BLOCKS = {"embedding_size": 8, "layers": 2, "feed_forward_size": U, "heads": 2}
BUILDER = {**vars(ModelConfig()), "architecture": "rnn"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_tied_table_is_read_in_float_where_it_is_quantized(mode):
    network = Transformer(TARGET, TARGET, **BLOCKS)
    ids = np.random.default_rng(2).integers(4, TARGET, (B, T)).astype("int32")
    words = np.array([4, 9, 11])

    def read():
        parts = network.output_of(words)[0], network.output_matrix()[0]
        return [np.array(each) for each in (network({"source": ids, "target": ids}), *parts)]

    before = read()
    network.quantize(mode)
    for one, other in zip(read(), before, strict=True):
        assert 0 < np.abs(one - other).max() < {"int8": 0.03, "int4": 0.3}[mode] * np.abs(one).max()


def stepped_without_its_number():
    model = Transformer(TARGET, TARGET, **BLOCKS)
    ids = np.full((B, S), 5, "int32")
    model.step(ids[:, 0], model.start(ids))


@pytest.mark.parametrize(
    ("changes", "kind", "attention"),
    [
        ({}, RNNSearch, "BahdanauAttention"),
        ({"architecture": "rnnencdec"}, RNNEncDec, None),
        ({"architecture": "luong", "score": "dot"}, Luong, "LuongAttention"),
        ({"architecture": "luong", "attention": "local-p"}, Luong, "LocalAttention"),
        ({"architecture": "luong", "attention": "none", "reverse_source": True}, Luong, None),
    ],
)
def test_builder_builds_what_the_configuration_says(changes, kind, attention):
    config = ModelConfig(embedding_size=E, units=U, dropout=0.25, readout_size=R, **changes)
    model = build_model(config, SOURCE, TARGET)
    assert type(model) is kind and model.built
    values = model.get_config()
    for name in ("embedding_size", "units", "dropout", "readout_size"):
        assert values[name] == getattr(config, name)
    sizes = values["source_vocabulary_size"], values["target_vocabulary_size"]
    assert sizes == (SOURCE, TARGET)
    if attention:
        assert type(model.decoder.attention).__name__ == attention
    if kind is Luong:
        assert model.decoder.input_feeding and len(model.encoder.stack) == 2
        assert model.has_attention == bool(attention)
        assert model.encoder.backwards == bool(config.reverse_source)


def test_a_layer_in_place_of_a_part_is_the_one_used_and_saved():
    attention, encoder = BahdanauAttention(A), keras.layers.GRU(9, return_sequences=True)
    model = RNNSearch(SOURCE, TARGET, attention=attention, encoder=encoder, **SIZES)
    assert model.decoder.attention is attention and model.encoder is encoder
    config = model.get_config()
    assert config["attention"]["config"]["units"] == A and config["cell"] is None
    copy = RNNSearch.from_config(config)
    assert [w.shape for w in copy.weights] == [w.shape for w in model.weights]
    assert type(copy.encoder) is keras.layers.GRU


def test_a_transformer_is_put_together_as_published():
    model = Transformer(TARGET, TARGET, share_embeddings=True, **BLOCKS)
    randomize(model, scale=1.0)
    source = np.array([[5, 6, 7, 8, 0], [9, 4, 0, 0, 0]], "int32")
    target = np.array([[2, 7, 7, 3], [2, 9, 0, 0]], "int32")
    size = BLOCKS["embedding_size"]
    table = np.asarray(model.source_embedding.embeddings, np.float64)
    places, widths = np.arange(9)[:, None], np.arange(0, size, 2)
    codes = np.zeros((9, size))
    codes[:, 0::2] = np.sin(places / 10000 ** (widths / size))
    codes[:, 1::2] = np.cos(places / 10000 ** (widths / size))

    def embedded(ids):
        words = np.sqrt(size) * table[ids] + codes[: ids.shape[1]]
        return words.astype("float32")

    memory = embedded(source)
    for block in model.encoders:
        memory = block(memory, inputs_mask=source > 0)
    x = embedded(target)
    for block in model.decoders:
        x = block(x, memory, value_mask=source > 0)
    expected = np.asarray(x) @ table.T + np.asarray(model.word_logits.bias)
    logits = model({"source": source, "target": target})
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_one_table_serves_source_target_and_output_of_a_transformer():
    size = BLOCKS["embedding_size"]
    tables = {
        (True, True): [(TARGET, size)],
        (False, True): [(TARGET, size)] * 2,
        (True, False): [(TARGET, size), (size, TARGET)],
    }
    for (shared, tied), expected in tables.items():
        model = Transformer(TARGET, TARGET, share_embeddings=shared, tie_embeddings=tied, **BLOCKS)
        shapes = [tuple(v.shape) for v in model.trainable_variables]
        assert sorted(s for s in shapes if TARGET in s and len(s) == 2) == sorted(expected)


def test_layer_and_head_of_the_attention_are_chosen():
    model = Transformer(TARGET, TARGET, **BLOCKS)
    randomize(model)
    ids = np.random.default_rng(0).integers(4, TARGET, (B, S)).astype("int32")
    scores = {}
    for layer, head in ((0, 0), (0, 1), (0, None), (1, None), (None, None)):
        model.show_attention(layer, head)
        _, scores[layer, head] = map(np.asarray, model.score(ids, ids[:, :T]))
        state = model.start(ids, max_length=T)
        _, state = model.step(ids[:, 0], state, 0)
        np.testing.assert_allclose(state["attention_scores"], scores[layer, head][:, 0], atol=1e-5)
        np.testing.assert_allclose(scores[layer, head].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(scores[0, None], (scores[0, 0] + scores[0, 1]) / 2, atol=1e-6)
    np.testing.assert_array_equal(scores[1, None], scores[None, None])
    assert np.abs(scores[0, 0] - scores[0, 1]).max() > 1e-2
    assert np.abs(scores[0, None] - scores[1, None]).max() > 1e-2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: RNNSearch(SOURCE, TARGET, readout_size=R, tie_embeddings=True, **SIZES),
            r"as wide as the embedding.*Received: readout of width 5",
        ),
        (
            lambda: RNNSearch(SOURCE, TARGET, attention="luong", **SIZES),
            "`attention` of RNNSearch should be a Keras layer.*Received: attention='luong'",
        ),
        (
            lambda: RNNSearch(SOURCE, TARGET, cell=keras.layers.LSTMCell(U + 1), **SIZES),
            r"as many units as the network \(11\). Received: a cell of output size 12",
        ),
        (
            lambda: Luong(SOURCE, TARGET, layers=0, **SIZES),
            "`layers` should be a positive integer. Received: layers=0",
        ),
        (
            lambda: Transformer(SOURCE, TARGET, embedding_size=8, heads=2, decoder_layers=0),
            "`decoder_layers` should be a positive integer. Received: decoder_layers=0",
        ),
        (
            lambda: Luong(
                SOURCE, TARGET, encoder=keras.layers.GRU(U), reverse_source=True, **SIZES
            ),
            "`reverse_source` goes with the default encoder.*Received: reverse_source=True",
        ),
        (
            lambda: Luong(SOURCE, TARGET, encoder=keras.layers.GRU(U), **SIZES),
            "should return annotations and the states",
        ),
        (
            lambda: build_model(types.SimpleNamespace(**BUILDER), SOURCE, TARGET),
            r"`architecture` must be one of .*Received: .*'rnn'",
        ),
        (
            lambda: WordLogits(TARGET, tied=True)(np.zeros((2, E), "float32")),
            "`table` must be given where `tied=True`",
        ),
        (
            lambda: Transformer(TARGET, TARGET + 1, share_embeddings=True, **BLOCKS),
            "one vocabulary.*Received: 29 source words and 30",
        ),
        (
            lambda: Transformer(TARGET, TARGET, positions="absolute", **BLOCKS),
            "`positions` must be one of.*Received: .*'absolute'",
        ),
        (
            lambda: Transformer(TARGET, TARGET, **BLOCKS).show_attention(2),
            "one of the 2 decoder layers.*Received: 2",
        ),
        (
            lambda: Transformer(TARGET, TARGET, **BLOCKS).show_attention(0, 2),
            "one of the 2 heads.*Received: 2",
        ),
        (stepped_without_its_number, "needs its number.*Received: index=None"),
    ],
)
def test_refusals_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["▁tra", "ga", "▁uma", "."], ["▁traga", "▁uma", "."]),
        (["▁", "j", "uin", "▁1", "9"], ["▁juin", "▁1", "9"]),
        (["▁don", "'", "t", ",", "▁"], ["▁don't", ",", "▁"]),
        (["▁日", "本", "語"], ["▁日", "本", "語"]),
        (["tra", "ga"], ["tra", "ga"]),  # of words
        ([">>fra<<", "▁e", "\u0301t", "é"], [">>fra<<", "▁e\u0301té"]),
        ([], []),
    ],
)
def test_pictures_show_whole_words(tokens, words):
    """A word is looked at by as much as all its pieces are, and looks as they do in the mean."""
    attention = np.random.default_rng(1).uniform(size=(3, len(tokens)))
    weights, source, target = whole_words(attention, tokens, ["▁a", "b", "▁c"])
    assert (source, target) == (words, ["▁ab", "▁c"])
    starts = np.cumsum([0, *map(len, tokens)])[:-1]
    column_of = np.searchsorted(np.cumsum(list(map(len, words))), starts, side="right")
    wanted = np.zeros((2, len(words)))
    for column, of_token in zip(column_of, attention.T, strict=True):
        wanted[:, column] += [of_token[:2].mean(), of_token[2]]
    np.testing.assert_allclose(weights, wanted)
    turned, columns, rows = whole_words(attention.T, ["▁a", "b", "▁c"], tokens)
    assert (columns, rows) == (["▁ab", "▁c"], words)
    for row, each in enumerate(turned):
        of_word = attention.T[column_of == row].mean(axis=0)
        np.testing.assert_allclose(each, [of_word[:2].sum(), of_word[2]])
