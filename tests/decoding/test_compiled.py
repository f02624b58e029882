"""Searches in a graph: one trace for every size, the eager results, limits known only there."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import beam_search, greedy_search, sample
from tests.decoding.chains import END, START, Chain, Rules, check_result, search_narrowly
from tests.decoding.running import BACKEND, MODES, prepare

COMPILED = MODES[min(1, len(MODES) - 1)]  # tf.function, jit, or PyTorch as it is
SIZES = [(3, 7), (2, 5), (3, 7), (4, 11)]
VOCABULARY = 13
TRACES = {"tensorflow": 1, "jax": len(set(SIZES)), "torch": len(SIZES)}[BACKEND]
OPTIONS = {
    "start_id": START,
    "end_id": END,
    "attention_key": "attention_scores",
    "constant_keys": ("memory",),
}


def test_beam_search_is_traced_once_for_all_sizes():
    chains = [Chain(batch, VOCABULARY, memory, seed=40 + batch) for batch, memory in SIZES]
    rules = Rules(max_length=5, alpha=0.6, beta=0.2, min_length=2, no_repeat_ngram=2)
    traces = []

    def search(state):
        traces.append(state)
        return beam_search(
            chains[0].step,  # knows the vocabulary; everything else is in the state
            state,
            max_length=rules.max_length,
            min_length=rules.min_length,
            no_repeat_ngram=rules.no_repeat_ngram,
            length_penalty=rules.alpha,
            coverage_penalty=rules.beta,
            attention_mask=state["memory"]["mask"],
            beam_size=3,
            n_best=2,
            **OPTIONS,
        )

    run = prepare(search, COMPILED, chains[0].state(), VOCABULARY)
    for chain in chains:
        expected = [search_narrowly(chain, b, rules, 3, 2)[0] for b in range(chain.batch)]
        check_result(run(chain.state()), expected)
    assert len(traces) == TRACES


@pytest.mark.by_default("greedy")
@pytest.mark.parametrize("name", ["greedy", "sample"])
def test_single_hypotheses_are_traced_once_for_all_sizes(name):
    chains = [Chain(batch, VOCABULARY, memory, seed=50 + batch) for batch, memory in SIZES]
    traces = []

    def search(state):
        options = {"max_length": ops.shape(state["memory"]["mask"])[1], **OPTIONS}
        if name == "greedy":
            return greedy_search(chains[0].step, state, min_length=3, **options)
        return sample(
            chains[0].step, state, seed=3, n_best=2, top_p=0.9, no_repeat_ngram=2, **options
        )

    def counted(state):
        traces.append(state)
        return search(state)

    run = prepare(counted, COMPILED, chains[0].state(), VOCABULARY)
    for chain in chains:
        compiled, eager = run(chain.state()), search(chain.state())
        assert compiled.tokens.shape[2] == chain.memory
        for ours, theirs in zip(compiled, eager, strict=True):
            np.testing.assert_allclose(
                ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs), rtol=1e-4, atol=1e-6
            )
    assert len(traces) == TRACES


@pytest.mark.parametrize("longest", [None, 5])
def test_limits_that_only_the_graph_knows(longest):
    """A tensor among the inputs: TensorFlow sizes its buffers by it, JAX has to be told."""
    chain, limits, rules = Chain(seed=60), (4, 2, 9 if longest else 5), Rules(max_length=5)
    state = {**chain.state(), "limits": ops.convert_to_tensor(limits, dtype="int32")}

    def search(state):
        options = {**OPTIONS, "constant_keys": ("memory", "limits"), "longest": longest}
        return beam_search(chain.step, state, max_length=state["limits"], beam_size=2, **options)

    run = prepare(search, COMPILED, state, chain.vocabulary)
    if BACKEND == "jax" and longest is None:
        with pytest.raises(ValueError, match="known when the search is traced.* or `longest`"):
            run(state)
        run = search
    expected = [
        search_narrowly(chain, b, rules._replace(max_length=min(limits[b], 5)), 2, 1)[0]
        for b in range(3)
    ]
    for found in (run(state), search(state)):
        check_result(found, expected)
        assert found.tokens.shape[2] == 5


@pytest.mark.parametrize("search", [greedy_search, beam_search, sample])
def test_longest_holds_for_every_search(search):
    chain = Chain(seed=60)
    found = search(chain.step, chain.state(), max_length=9, longest=3, **OPTIONS)
    assert found.tokens.shape[2] == 3
    for longest in (0, 2.0):
        with pytest.raises(ValueError, match="`longest` must be a positive integer"):
            search(chain.step, chain.state(), max_length=9, longest=longest, **OPTIONS)


def test_a_seed_generator_draws_anew_in_each_call_of_a_graph():
    generator = keras.random.SeedGenerator(3)
    chain = Chain(vocabulary=97, seed=61)

    def search(state):
        return sample(chain.step, state, max_length=9, min_length=9, seed=generator, **OPTIONS)

    # JAX would need the generator's state passed through `jit`.
    run = prepare(search, "eager" if BACKEND == "jax" else COMPILED)
    first, second = (ops.convert_to_numpy(run(chain.state()).tokens) for _ in range(2))
    assert (first != second).any()


@pytest.mark.by_default("eager")
@pytest.mark.parametrize("mode", MODES)
def test_keras_layers_as_the_step(mode):
    """Stacked cells with lists of states: the probabilities are those of the tokens found."""
    vocabulary, batch = 23, 3
    embedding = keras.layers.Embedding(vocabulary, 8)
    cell = keras.layers.StackedRNNCells([keras.layers.LSTMCell(8), keras.layers.GRUCell(5)])
    dense = keras.layers.Dense(vocabulary, kernel_initializer=keras.initializers.RandomNormal())
    dense.build((None, 5))
    dense.kernel.assign(9.0 * dense.kernel)
    start = [ops.convert_to_tensor(x) for x in np.random.default_rng(0).normal(size=(3, 3, 8))]
    state = [[ops.cast(x, "float32") for x in start[:2]], ops.cast(start[2][:, :5], "float32")]

    def step(tokens, state, index):
        output, state = cell(embedding(tokens), state)
        return dense(output), state

    # Builds the layers, outside of any graph.
    step(ops.ones((batch,), dtype="int32"), state, 0)
    run = prepare(
        lambda state: beam_search(
            step, state, start_id=START, end_id=END, max_length=6, beam_size=4, n_best=3
        ),
        mode,
    )
    result = run(state)
    tokens, lengths = ops.convert_to_numpy(result.tokens), ops.convert_to_numpy(result.lengths)
    for place in range(3):
        forced, total = state, np.zeros(batch)
        last = ops.full((batch,), START, dtype="int32")
        for index in range(6):
            logits, forced = step(last, forced, index)
            log_probabilities = ops.convert_to_numpy(ops.log_softmax(logits, axis=-1))
            here = log_probabilities[np.arange(batch), tokens[:, place, index]]
            total += np.where(index < lengths[:, place], here, 0)
            last = ops.convert_to_tensor(tokens[:, place, index])
        found = ops.convert_to_numpy(result.log_probabilities)[:, place]
        np.testing.assert_allclose(found, total, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="SavedModels are TensorFlow's")
def test_a_saved_model_ends_with_any_of_several_tokens(tmp_path):
    import tensorflow as tf

    chain = Chain(3, VOCABULARY, 7, seed=60)
    options = {**OPTIONS, "end_id": [END, 5], "max_length": 6}

    def search(state):
        greedy = greedy_search(chain.step, state, **options)
        beam = beam_search(chain.step, state, beam_size=3, **options)
        return {"greedy": greedy.tokens, "beam": beam.tokens}

    expected = search(chain.state())
    assert np.isin(5, expected["greedy"]) or np.isin(5, expected["beam"])
    module = tf.Module()
    module.search = prepare(search, "tf.function", chain.state(), VOCABULARY)
    tf.saved_model.save(module, str(tmp_path / "model"))
    found = tf.saved_model.load(str(tmp_path / "model")).search(chain.state())
    for name, tokens in expected.items():
        np.testing.assert_array_equal(found[name], tokens)
