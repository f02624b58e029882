"""The summarisation network: an encoder of documents, and a decoder that attends and copies."""

from typing import Any, Literal

import keras
from keras import ops

from keras_attention import layers
from keras_attention.decoding import DecodingResult, SearchOptions, sentence_seeds
from keras_attention.decoding import search as search_by_options
from keras_attention.layers import AttentionMechanism, BahdanauAttention
from keras_attention.losses import masked_sparse_categorical_crossentropy, token_weights

from ...base.network import Network, recurrent_start, without_unwritable
from ...errors import check_counts
from ...text import END_ID, PAD_ID, START_ID, UNK_ID
from ..config import ModelConfig
from .encoders import FlatEncoder, HierarchicalEncoder, TransformerReader, on_end


@keras.saving.register_keras_serializable("keras_attention.summarization")
class SummarizationModel(Network):
    """Reads a document and writes its summary, word by word.

    ```
    log_p         = model({"source": (B, N, W), "target": (B, T)})      # (B, T, V + extra)
    state         = model.start(source, max_length)             # every leaf has B rows
    log_p, state  = model.step(tokens, state, index)            # (B,) -> (B, V + extra)
    ```

    An LSTM with input feeding attends to the document after each word. With a pointer, a word is
    generated from the vocabulary of `V` words or copied from the document, whose unknown words have
    the ids `V`, `V + 1`, ... The mixture has no logits, so that the call gives its log
    probabilities; they serve as logits wherever those are wanted, because `softmax(log p) = p`.
    Without a pointer the call gives logits `(B, T, V)`.

    Training needs the labels' probabilities alone: `log_likelihood` computes them from `features`,
    without the mixture over the whole vocabulary.

    Args:
        vocabulary_size: Integer, how many words there are, padding included, `V`.
        units: Integer, units of the decoder, and of the default encoder's two directions together.
        embedding_size: Integer, width of the word embeddings.
        attention: The attention mechanism, such as `CoverageAttention(units, loss_weight=1.0)` or
            `TemporalAttention()`; None for `BahdanauAttention(units)`, of words and sentences where
            the encoder reads sentences. False for no attention: the decoder reads the encoder's
            last state at each step, for comparison, and `pointer` must be False too.
        encoder: `FlatEncoder`, `HierarchicalEncoder` or `TransformerReader`, or a layer that is
            called as they are; None for `FlatEncoder(units)`.
        cell: The decoder's cell, or a stack of cells, of `units` units; None for `LSTMCell(units)`.
        pointer: Boolean, whether words are copied from the document.
        intra_decoder: Boolean, whether the decoder attends to its own earlier states too.
        extra_words: Integer, how many unknown words of a document have ids, with a pointer.
        dropout: Rate of dropout on embeddings and on the vector that words are chosen by.
        **kwargs: `name` and `dtype`.

    Call arguments:
        inputs: Dict of `"source"`, ids of the documents' words by sentence, `(B, N, W)`, and
            `"target"`, ids of the start and the summaries' words, `(B, T)`; both padded with 0.
        training: Boolean, whether dropout acts.

    Returns:
        Log probabilities `(B, T, V + extra_words)`, float32; without a pointer logits `(B, T, V)`.

    Raises:
        ValueError: Where a part is no layer, a pointer comes without attention, or a size is wrong.

    Reference:
        - See, Liu and Manning 2017, "Get to the point: summarization with pointer-generator
          networks", section 2
        - Nallapati et al. 2016, "Abstractive text summarization using sequence-to-sequence RNNs and
          beyond", section 2
        - Paulus, Xiong and Socher 2017, "A deep reinforced model for abstractive summarization",
          section 2

    Example:

    ```python
    import numpy as np
    from keras_attention import CoverageAttention
    from keras_attention.applications.summarization import SummarizationModel

    model = SummarizationModel(
        30, units=8, embedding_size=6, extra_words=5, attention=CoverageAttention(8)
    )
    source = np.array([[[4, 30, 6]]])  # one sentence; the id 30 is its first unknown word
    assert tuple(model({"source": source, "target": np.array([[2, 7]])}).shape) == (1, 2, 35)

    state = model.start(source, max_length=9)
    log_p, state = model.step(np.array([2]), state)
    assert tuple(state["attention_scores"].shape) == (1, 3)
    ```
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 256,
        embedding_size: int = 128,
        attention: AttentionMechanism | Literal[False] | None = None,
        encoder: keras.layers.Layer | None = None,
        pointer: bool = True,
        intra_decoder: bool = False,
        extra_words: int = 100,
        dropout: float = 0.0,
        cell: keras.layers.Layer | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_counts(vocabulary_size=vocabulary_size, units=units)
        if pointer and (attention is False or extra_words < 1):
            raise ValueError(
                "A pointer needs attention to copy by, and at least one id for unknown words. "
                f"Received: attention={attention}, extra_words={extra_words}; set pointer=False "
                "for a network without."
            )
        self.keep(vocabulary_size=vocabulary_size, units=units, embedding_size=embedding_size)
        self.has_attention = attention is not False
        self.extra_size = extra_words if pointer else 0
        self.dropout_rate = dropout
        policy = {"dtype": self.dtype_policy}
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_size, name="embedding", **policy
        )
        self.encoder = self.part(
            "encoder", encoder, lambda: FlatEncoder(units, name="encoder", **policy)
        )
        self.reads_sentences = getattr(self.encoder, "reads_sentences", False)
        start = {"recurrent_initializer": recurrent_start(self.dtype_policy), **policy}
        cell = self.part("cell", cell, lambda: keras.layers.LSTMCell(units, name="cell", **start))
        self.bridges = [  # to the first states, of an LSTM `h` and `c`
            keras.layers.Dense(size, "tanh", name=f"bridge_{'hc'[i] if i < 2 else i}", **policy)
            for i, size in enumerate(keras.tree.flatten(cell.state_size))
        ]
        attention = self.part("attention", attention or None, self._default_attention)
        options = {"query": "current", "input_feeding": True, "name": "decoder"}
        self.decoder = layers.AttentionDecoder(cell, attention, **options, **policy)
        self.intra = layers.IntraDecoderAttention(name="intra", **policy) if intra_decoder else None
        self.dropout = keras.layers.Dropout(dropout, **policy)
        self.readout = keras.layers.Dense(vocabulary_size, name="readout", **policy)
        # In float32, as the last layer of a network in mixed precision.
        self.pointer = layers.PointerGenerator(name="pointer", dtype="float32") if pointer else None
        self.build()

    def _default_attention(self):
        options = {"units": self.units, "use_bias": True, "dtype": self.dtype_policy}
        if not (self.reads_sentences and self.has_attention):
            return BahdanauAttention(name="attention", **options)
        parts = [BahdanauAttention(name=name, **options) for name in ("words", "sentences")]
        return layers.HierarchicalAttention(*parts, name="attention", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        if self.decoder.output_size != self.units:
            raise ValueError(
                f"`cell` should have as many units as the network ({self.units}). Received: a cell "
                f"of output size {self.decoder.output_size}"
            )
        # A call makes the weights of every part, also of those that were given.
        ids = ops.ones((1, 2), "int32")
        self.call({"source": ops.expand_dims(ids, 1), "target": ids})

    def call(self, inputs, training=None):
        features = self.features(inputs, training)
        if self.pointer is None:
            return features["logits"]
        return self.pointer(**features, extra_size=self.extra_size)

    def compute_mask(self, inputs, previous_mask=None):
        """Return where targets are words, so that metrics leave padding out."""
        return ops.not_equal(inputs["target"], PAD_ID)

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.vocabulary_size + self.extra_size)

    def features(self, inputs, training=None) -> dict:
        """Return the tensors from which the network chooses each word of given summaries.

        Returns:
            Dictionary of `logits` `(B, T, V)`; with a pointer, of `scores` `(B, T, N W)`,
            `source_ids` `(B, N W)`, `context`, `state` and `inputs` too.
        """
        source, target = inputs["source"], inputs["target"]
        memory, mask, start = self.encode(source, training)
        embedded = self.dropout(self.embed(target), training=training)
        outputs, contexts, scores = self.decoder(
            embedded,
            memory,
            initial_state=start,
            value_mask=mask,
            return_attention_scores=True,
            return_context=True,
            inputs_mask=ops.not_equal(target, PAD_ID),
            training=training,
        )
        read = outputs
        if self.intra is not None:
            read = ops.concatenate([outputs, self.intra(outputs)], axis=-1)
        logits = self.readout(self.dropout(read, training=training))
        if self.pointer is None:
            return {"logits": logits}
        return {
            "logits": logits,
            "scores": ops.reshape(scores, (*ops.shape(target), -1)),
            "source_ids": on_end(source),
            "context": contexts,
            "state": outputs,
            "inputs": embedded,
        }

    def log_likelihood(self, labels, features: dict):
        """Return the log probabilities of labels, float32 `(B, T)`.

        Args:
            labels: Ids of the extended vocabulary `(B, T)`, padded with 0.
            features: The result of `features`.
        """
        if self.pointer is None:
            return -masked_sparse_categorical_crossentropy(labels, features["logits"])
        return self.pointer.log_likelihood(labels, **features)

    def encode(self, source, training=None):
        """Return the memory of documents `(B, N, W)`, its mask, and the decoder's first states."""
        mask = ops.not_equal(source, PAD_ID)
        words = self.dropout(self.embed(source), training=training)
        memory, mask, last = self.encoder(words, mask)
        if not self.has_attention:
            memory = ops.expand_dims(last, 1)
            mask = ops.ones(ops.shape(memory)[:2], "bool")
        return memory, mask, [bridge(last) for bridge in self.bridges]

    def embed(self, ids):
        """Return the embeddings of ids; words past the vocabulary are unknown."""
        return self.embedding(ops.where(ids < self.vocabulary_size, ids, UNK_ID))

    def entries(self):
        words = [(self.embedding.embeddings, 0), (self.readout.kernel, 1), (self.readout.bias, 0)]
        return {"vocabulary_size": words}

    def start(self, source, max_length: int) -> dict:
        """Return the state before the first word.

        Args:
            source: Ids `(B, N, W)`.
            max_length: The most words of a summary, its end counted.
        """
        memory, mask, first = self.encode(source)
        prepared = self.decoder.prepare_memory(memory, mask)
        flat = on_end(source)
        state = {
            "memory": prepared,
            "source_ids": flat,
            "decoder": self.decoder.initial_state(prepared, first),
            "attention_scores": ops.zeros(ops.shape(flat), "float32"),
            "p_gen": ops.ones((ops.shape(flat)[0], 1), "float32"),
        }
        if self.intra is not None:
            room = ops.zeros((ops.shape(flat)[0], max_length, self.units), self.compute_dtype)
            state["room"] = self.intra.prepare_memory(room)
            state["own"] = self.intra.initial_state(state["room"])
        return state

    @property
    def constant_keys(self) -> tuple[str, ...]:
        """The entries of a state that no step changes."""
        return ("memory", "source_ids", *(["room"] if self.intra is not None else []))

    def step(self, tokens, state, index=None):
        """Advance by one word.

        Args:
            tokens: The words before, `(B,)`.
            state: The result of `start` or of the step before; its rows may be tiled and reordered.
            index: The step's number, which the network does not need.

        Returns:
            `(log_p, state)`: log probabilities of the next word `(B, V + extra_words)`, minus
            infinity for padding and the start; and the state, with the weights of the step,
            `(B, N W)`, as `"attention_scores"` and its `"p_gen"`, `(B, 1)`.
        """
        embedded = self.embed(tokens)
        output, scores, after = self.decoder.step(embedded, state["memory"], state["decoder"])
        state = {**state, "decoder": after}
        if self.has_attention:
            scores = ops.reshape(scores, ops.shape(state["attention_scores"]))
            state["attention_scores"] = ops.cast(scores, "float32")
        read = output
        if self.intra is not None:
            own, _, state["own"] = self.intra.step(output, state["room"], state["own"])
            read = ops.concatenate([output, own], axis=-1)
        logits = self.readout(read)
        if self.pointer is None:
            log_p = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
            return without_unwritable(log_p), state
        read_by = (state["source_ids"], after["context"], output, embedded)
        options = {"extra_size": self.extra_size, "return_p_gen": True}
        log_p, p_gen = self.pointer.step(logits, scores, *read_by, **options)
        state["p_gen"] = ops.expand_dims(p_gen, 1)
        return without_unwritable(log_p), state

    def get_config(self):
        own = {"attention": self.decoder.attention, "cell": self.decoder.cell}
        own = self.config_of(**own, encoder=self.encoder)
        own |= {} if self.has_attention else {"attention": False}
        own |= {"pointer": self.pointer is not None, "intra_decoder": self.intra is not None}
        own |= {"extra_words": self.extra_size, "dropout": self.dropout_rate}
        return {**super().get_config(), **own}


class LabelLikelihood(keras.losses.Loss):
    """The number of `MaskedSparseCategoricalCrossentropy`, from a network's features.

    It never makes the network's output: the mixture does not exist over the whole vocabulary.
    """

    def __init__(self, network: SummarizationModel):
        super().__init__("label_likelihood", "mean_with_sample_weight", dtype="float32")
        self._network = network

    def __call__(self, y_true, y_pred, sample_weight=None):
        return ops.divide_no_nan(*self.total_and_weight(y_true, y_pred, sample_weight))

    def total_and_weight(self, y_true, y_pred, sample_weight=None):
        """Return the sum over the words and their weight, which replicas add up (`GlobalMean`)."""
        weights = token_weights(y_true, PAD_ID, sample_weight)
        losses = -self._network.log_likelihood(y_true, y_pred)
        return ops.sum(losses * weights), ops.sum(weights)


def build_model(
    config: ModelConfig,
    vocabulary_size: int,
    extra_words: int = 100,
    max_sentences: int = 100,
    dtype: Any = None,
    **parts: keras.layers.Layer,
) -> SummarizationModel:
    """Build the network that a configuration describes, with new weights.

    Args:
        config: The `model` section.
        vocabulary_size: How many words there are, padding included.
        extra_words: How many unknown words of a document have ids, with a pointer.
        max_sentences: The most sentences of a document.
        dtype: The dtype policy of the network; None for Keras' global one.
        **parts: `attention` and `encoder` in place of those that `config` describes.
    """
    units = config.attention_units or config.units
    additive = {"units": units, "use_bias": True, "name": "attention", "dtype": dtype}
    attention = BahdanauAttention(**additive)
    if config.coverage:
        loss = {"loss_weight": config.coverage_weight, "loss_start": config.coverage_start}
        attention = layers.CoverageAttention(**loss, **additive)
    elif config.temporal:
        attention = layers.TemporalAttention(name="attention", dtype=dtype)
    if config.encoder == "hierarchical":
        sentences = BahdanauAttention(**additive | {"name": "sentences"})
        attention = layers.HierarchicalAttention(attention, sentences, dtype=dtype)
        encoder = HierarchicalEncoder(config.units, max_sentences, dtype=dtype)
    elif config.encoder == "transformer":
        sizes = (config.embedding_size, config.layers, config.heads, config.dropout)
        encoder = TransformerReader(*sizes, dtype=dtype)
    else:
        encoder = FlatEncoder(config.units, dtype=dtype)
    names = ("units", "embedding_size", "pointer", "intra_decoder", "dropout")
    options = {name: getattr(config, name) for name in names}
    options |= {"attention": attention if config.attention else False, "encoder": encoder}
    options |= parts
    return SummarizationModel(vocabulary_size, extra_words=extra_words, dtype=dtype, **options)


def search(
    model: SummarizationModel,
    source,
    options: SearchOptions,
    seed=None,
    attention: bool = True,
    prefix=None,
) -> DecodingResult:
    """Search for the summaries of documents `(B, N, W)`; lengths are in words, without the end.

    The attention of the result has `p_gen` as one more column, `(B, K, T, N W + 1)`. `seed` is what
    `sentence_seeds` takes, in place of the options' own, where words are drawn. Summaries begin
    with the ids `prefix` `(B, P)`, padded behind with 0.
    """
    if options.uses_coverage and not model.has_attention:
        raise ValueError(
            "A coverage penalty needs a network with attention. Received: "
            f"coverage_penalty={options.coverage_penalty}"
        )
    longer = options.replace(max_length=options.max_length + 1)  # the end
    keeps = attention or options.uses_coverage

    def with_history(state):
        parts = [state["attention_scores"], state["p_gen"]]
        return {**state, "history": ops.concatenate(parts, axis=1)} if keeps else state

    def step(tokens, state, index):
        log_p, state = model.step(tokens, state, index)
        return log_p, with_history(state)

    state = with_history(model.start(source, longer.longest()))
    mask = ops.not_equal(state["source_ids"], PAD_ID)
    if options.sample:
        seed = options.seed if seed is None else seed
        seed = sentence_seeds(seed, state["source_ids"], mask)
    lengths = None
    if options.max_length_ratio is not None:
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1)
    result = search_by_options(
        step,
        state,
        longer,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        lengths=lengths,
        longest=longer.longest(),
        attention_key="history" if keeps else None,
        attention_mask=ops.pad(mask, [[0, 0], [0, 1]]) if options.uses_coverage else None,
        constant_keys=model.constant_keys,
        shrink_batch=True,
        seed=seed,
        prefix=prefix,
    )
    # The longest summaries may have their end one word later, or none: cut it off. `lengths` and
    # the log-probabilities still count it.
    size = options.max_length
    return result._replace(
        tokens=result.tokens[:, :, :size],
        attention=result.attention[:, :, :size] if attention else None,
    )
