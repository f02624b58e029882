"""The translation model of Vaswani et al. (2017)."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attention.decoding import mask_of_origins
from keras_attention.layers import PositionalEncoding, TransformerDecoder, TransformerEncoder

from ...errors import check_choice, check_counts
from ...text import END_ID, PAD_ID
from .base import TranslationModel
from .layers import padding_mask

POSITIONS = ("sinusoidal", "rotary", "alibi", "relative")
ATTENTIONS = ("cross-attention", "encoder self-attention", "decoder self-attention")


@keras.saving.register_keras_serializable("keras_attention.translation")
class Transformer(TranslationModel):
    """The Transformer: attention alone, over the source, over what is written, and between them.

    $$\\begin{aligned}
    x &= \\sqrt{D}\\,E_{source} + PE, \\qquad m = \\mathrm{Encoder}^{N}(x) \\\\
    y &= \\sqrt{D}\\,E_{target} + PE, \\qquad
      p = \\mathrm{softmax}(W_o\\,\\mathrm{Decoder}^{N}(y, m))
    \\end{aligned}$$

    With `norm="pre"`, encoder and decoder end in one more layer normalisation. Positions are the
    paper's sinusoids, added to the embeddings, or enter the scores of the self-attentions.

    Attention scores, for alignments and heat maps, are those of one decoder layer to the source:
    of one head, or the mean of all. `show_attention(layer, head)` chooses others, before a call is
    traced; no result but the scores changes.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, width `D` of embeddings and layers (512 in the paper's base model).
        layers: Integer, layers of the encoder (6).
        decoder_layers: Integer, layers of the decoder; `None` for as many. Most of the time of a
            search is the decoder's: one with a single layer, after a deep encoder, is fast.
        feed_forward_size: Integer, width of the feed-forward networks' hidden layer (2048).
        heads: Integer, attention heads (8).
        activation: Of the feed-forward networks (`"relu"`), as for `TransformerEncoder`.
        norm: `"post"`, as published, or `"pre"`.
        positions: `"sinusoidal"`, or `"rotary"`, `"alibi"` or `"relative"`.
        dropout: Rate of dropout on embeddings with positions and on the result of each sublayer
            (0.1).
        attention_dropout: Rate at which attention weights are dropped.
        tie_embeddings: Boolean, whether the target embedding serves as `W_o` too (yes).
        share_embeddings: Boolean, whether source and target have one embedding (yes); they must
            have one vocabulary then.
        attention_layer: Integer, the decoder layer whose scores are given; -1 for the last.
        attention_head: Integer, its head; `None` for the mean of all.
        max_steps: Integer, the longest translation that `start` makes room for when not told.
        autoregression: The decoder's sublayer that reads the earlier words: `"self-attention"`, as
            published, or `"ssru"`, a recurrent unit whose step is cheaper.
        sinusoids: Arguments of the `PositionalEncoding`, where positions are sinusoidal, such as
            `{"layout": "halves"}`; `None` for the paper's. Embeddings are scaled (`"scale"`).
        source_end: Boolean, whether the encoder reads the end token after a source's last word, as
            in Marian's models. Attention scores leave it out, so they add up to 1 at most.
        layer_norm_epsilon: Number added to the variance in layer normalisations.
        **kwargs: `name` and `dtype`; inputs and results are those of `TranslationModel`.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Kasai et al., 2021](https://arxiv.org/abs/2006.10369), for a deep encoder and a shallow
          decoder; [Kim et al., 2019](https://aclanthology.org/D19-5632), for the SSRU.

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.translation import Transformer

    model = Transformer(30, 40, embedding_size=8, layers=2, feed_forward_size=16, heads=2)
    source, target = np.array([[4, 5, 6]]), np.array([[2, 7]])
    assert tuple(model({"source": source, "target": target}).shape) == (1, 2, 40)

    state = model.start(source, max_length=9)
    logits, state = model.step(target[:, 0], state, index=0)
    assert tuple(state["attention_scores"].shape) == (1, 3)
    ```
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_size: int = 512,
        layers: int = 6,
        feed_forward_size: int = 2048,
        heads: int = 8,
        activation: str = "relu",
        norm: str = "post",
        positions: str = "sinusoidal",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        tie_embeddings: bool = True,
        share_embeddings: bool = False,
        attention_layer: int = -1,
        attention_head: int | None = None,
        max_steps: int = 100,
        decoder_layers: int | None = None,
        autoregression: str = "self-attention",
        sinusoids: Mapping[str, Any] | None = None,
        source_end: bool = False,
        layer_norm_epsilon: float = 1e-5,
        **kwargs,
    ):
        self.depth = layers if decoder_layers is None else decoder_layers
        check_counts(layers=layers, decoder_layers=self.depth)
        sizes = source_vocabulary_size, target_vocabulary_size, embedding_size
        super().__init__(
            *sizes,
            embedding_size,
            dropout,
            tie_embeddings,
            share_embeddings,
            keras.initializers.RandomNormal(stddev=embedding_size**-0.5),
            **kwargs,
        )
        check_choice("`positions`", positions, POSITIONS)
        if sinusoids is not None and positions != "sinusoidal":
            raise ValueError(
                "`sinusoids` goes with positions='sinusoidal' only: leave it out. "
                f"Received: positions={positions!r}, sinusoids={sinusoids!r}"
            )
        options = {"activation": activation, "norm": norm, "attention_dropout": attention_dropout}
        self.keep(**options, feed_forward_size=feed_forward_size, heads=heads)
        self.keep(positions=positions, share_embeddings=share_embeddings, max_steps=max_steps)
        self.keep(autoregression=autoregression, source_end=source_end)
        self.keep(sinusoids=None if sinusoids is None else dict(sinusoids))
        self.keep(layer_norm_epsilon=layer_norm_epsilon)
        if autoregression == "ssru":
            self.sentence_keys = ("memory",)
        else:
            self.growing_axes = {"decoder": 2}
            # Where scores depend on distances, the hypotheses of a beam cannot share their caches.
            shares = positions not in ("alibi", "relative")
            self.sentence_keys = ("memory", "decoder") if shares else ()
        options |= {"intermediate_dim": feed_forward_size, "num_heads": heads, "dropout": dropout}
        options["layer_norm_epsilon"] = layer_norm_epsilon
        self._add_layers(layers, **options)
        self.show_attention(attention_layer, attention_head)
        self.build()

    def _add_layers(self, layers, **options):
        policy = {"dtype": self.dtype_policy}
        positions = None if self.positions == "sinusoidal" else self.positions

        def stack(block, side, count, **own):
            common = {**policy, **options, **own}
            return [block(name=f"{side}_{i}", **common) for i in range(count)]

        self.encoders = stack(TransformerEncoder, "encoder", layers, positions=positions)
        own = {"autoregression": self.autoregression}
        if self.autoregression != "ssru":  # a recurrent unit needs no positions
            own["positions"] = positions
        self.decoders = stack(TransformerDecoder, "decoder", self.depth, **own)
        settings = {"scale": True, **(self.sinusoids or {})}
        self.position_codes = PositionalEncoding(name="position_codes", **settings, **policy)

        def last_norm(side):
            if self.norm == "post":
                return keras.layers.Identity(**policy)
            epsilon = self.layer_norm_epsilon
            return keras.layers.LayerNormalization(epsilon=epsilon, name=f"{side}_norm", **policy)

        self.encoder_norm, self.decoder_norm = last_norm("encoder"), last_norm("decoder")

    def build(self, input_shape=None):
        super().build()
        words = (None, None, self.embedding_size)
        self.position_codes.build(words)  # `quantize` refuses a layer that is not built
        for layer in self.encoders:
            layer.build(words)
        for layer in self.decoders:
            layer.build(words, words)
        self.encoder_norm.build(words)
        self.decoder_norm.build(words)

    def show_attention(self, layer: int | None = None, head: int | None = None) -> None:
        """Choose the attention whose scores are given, before the first call that is traced.

        Args:
            layer: The decoder layer; `None` for the last.
            head: Its head; `None` for the mean of all.

        Raises:
            ValueError: Where there is no such layer or head.
        """
        layer = -1 if layer is None else layer
        if not -self.depth <= layer < self.depth:
            raise ValueError(
                f"`attention_layer` must be one of the {self.depth} decoder layers, 0 to "
                f"{self.depth - 1}, or -1 for the last. Received: {layer}"
            )
        if head is not None and not 0 <= head < self.heads:
            raise ValueError(
                f"`attention_head` must be one of the {self.heads} heads, 0 to {self.heads - 1}, "
                f"or None for their mean. Received: {head}"
            )
        self.attention_layer, self.attention_head = layer, head

    def features(self, inputs, training=None):
        return self.decode(inputs["source"], inputs["target"], training=training)[0]

    def embedded(self, table, ids, first=0):
        if self.positions == "sinusoidal":
            return self.position_codes(table(ids), start_index=first)
        return table(ids) * ops.cast(self.embedding_size**0.5, self.compute_dtype)

    def encode(self, source, training=False):
        return self._encode(source, training)[:2]

    def _encode(self, source, training=False, return_attention_scores=False):
        """Return the memory, its mask, and a list of each layer's weights `(B, H, S, S)`.

        With `source_end`, the end token has the position after the last word for the encoder. In
        the memory, which has no order for the decoder, it comes last, after all padding.
        """
        mask, read = padding_mask(source), source
        if self.source_end:
            lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
            read = ops.pad(source, ((0, 0), (0, 1)), constant_values=PAD_ID)
            steps = ops.arange(ops.shape(read)[1], dtype="int32")[None]
            is_end = ops.equal(steps, lengths)
            read = ops.where(is_end, ops.cast(END_ID, read.dtype), read)
        read_mask, found = padding_mask(read), []
        x = self.embed_source(read, training)
        for layer in self.encoders:
            options = {"inputs_mask": read_mask, "training": training}
            x = layer(x, return_attention_scores=return_attention_scores, **options)
            if return_attention_scores:
                x, weights = x
                found.append(weights)
        x = self.encoder_norm(x)
        if not self.source_end:
            return x, mask, found
        end = ops.sum(ops.where(is_end[..., None], x, 0), axis=1, keepdims=True)
        pairs = ops.logical_and(mask[:, None, :, None], mask[:, None, None, :])
        found = [ops.where(pairs, each[:, :, :-1, :-1], 0) for each in found]
        memory = ops.concatenate([x[:, :-1], end], axis=1)
        return memory, ops.concatenate([mask, ops.ones_like(mask[:, :1])], axis=1), found

    def decode(self, source, target, training=False, return_attention_scores=False):
        memory, mask = self.encode(source, training)
        x, scores = self.embed_target(target, training), None
        for index, layer in enumerate(self.decoders):
            wanted = return_attention_scores and index == self.attention_layer % self.depth
            results = layer(
                x, memory, value_mask=mask, return_attention_scores=wanted, training=training
            )
            x, weights = results if wanted else (results, None)
            scores = self._scores(weights) if wanted else scores
        return self.decoder_norm(x), scores

    def attention_maps(self, source, target):
        """Return the weights of every layer and head, `(B, layers, heads, rows, columns)`, by name.

        `"encoder self-attention"` is among source words; of `"cross-attention"` and
        `"decoder self-attention"`, row `t` is that of the word after `target[:, t]`.
        """
        memory, mask, of_encoder = self._encode(source, return_attention_scores=True)
        found = {name: [] for name in ATTENTIONS} | {"encoder self-attention": of_encoder}
        x = self.embed_target(target)
        for layer in self.decoders:
            x, weights = layer(x, memory, value_mask=mask, return_attention_scores=True)
            found["cross-attention"].append(self._of_words(weights["cross_attention"]))
            if "self_attention" in weights:
                found["decoder self-attention"].append(weights["self_attention"])
        return {name: ops.stack(layers, axis=1) for name, layers in found.items() if layers}

    def start(self, source, max_length=None):
        memory, mask = self.encode(source)
        room = self.max_steps if max_length is None else max_length
        rows = ops.shape(source)[0]
        return {
            "memory": [layer.prepare_memory(memory, mask) for layer in self.decoders],
            "decoder": [layer.initial_state(rows, room) for layer in self.decoders],
            "attention_scores": ops.zeros(ops.shape(source), memory.dtype),
        }

    def step(self, tokens, state, index=None, words=None):
        if index is None:
            raise ValueError(
                "A step of the Transformer needs its number, for the word's position. Received: "
                "index=None"
            )
        x = self.embedded(self.target_embedding, tokens[:, None], index)[:, 0]
        after, scores, beams = [], None, {}
        if "origins" in state:
            beams["copies"] = copies = state["origins"].shape[1]
            if "decoder" in self.sentence_keys:
                room = ops.shape(state["decoder"][0]["key"])[2] // copies
                beams["attention_mask"] = mask_of_origins(state["origins"], index, room)
        for place, layer in enumerate(self.decoders):
            x, weights, cache = layer.step(
                x, state["memory"][place], state["decoder"][place], index, **beams
            )
            after.append(cache)
            if place == self.attention_layer % self.depth:
                scores = self._scores(weights)
        state = {**state, "decoder": after, "attention_scores": scores}
        return self.logits(self.decoder_norm(x), words), state

    def _scores(self, weights):
        """Return `(..., S)` of the weights `(B, H, ..., S)` of a decoder layer."""
        weights = self._of_words(weights["cross_attention"])
        if self.attention_head is None:
            return ops.mean(weights, axis=1)
        return weights[:, self.attention_head]

    def _of_words(self, weights):
        """Return weights `(..., S)` of the source's words, without those of its end token."""
        return weights[..., :-1] if self.source_end else weights

    def get_config(self):
        shown = {"attention_layer": self.attention_layer, "attention_head": self.attention_head}
        layers = {"layers": len(self.encoders), "decoder_layers": self.depth}
        return {**super().get_config(), **layers, **shown}
