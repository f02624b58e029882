"""Several translation networks that write one translation together."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ...base.network import Network
from .base import TranslationModel


@keras.saving.register_keras_serializable("keras_attention.translation")
class Ensemble(TranslationModel):
    """The mean of several networks' probabilities, word by word.

        p(y_t | y_<t, x) = 1/M Σ_m p_m(y_t | y_<t, x)

    The networks may be of different architectures and sizes; they read and write the same
    vocabularies. One search runs over all of them, in as many times the time and memory. The
    attention is the mean of theirs, where all have one.

    Args:
        networks: Translation networks, two at least.
        **kwargs: `name` and `dtype`.

    Call arguments:
        inputs: Dict of token ids, `"source"` `(B, S)` and `"target"` `(B, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Log-probabilities `(B, T, target_vocabulary_size)`, in float32.

    Raises:
        ValueError: Where fewer than two networks are given, or vocabularies differ.

    Reference:
        Sutskever et al. 2014, "Sequence to sequence learning with neural networks", section 3.6;
        Luong et al. 2015, section 4.

    Example:

    ```python
    from keras_attention.applications.translation import Ensemble, RNNSearch

    networks = [RNNSearch(20, 30, embedding_size=8, units=8) for _ in range(3)]
    assert Ensemble(networks).target_vocabulary_size == 30
    ```
    """

    def __init__(self, networks: Sequence[TranslationModel], **kwargs: Any):
        networks = list(networks)
        if len(networks) < 2 or not all(isinstance(each, TranslationModel) for each in networks):
            raise ValueError(
                "`networks` should be translation networks, two at least. "
                f"Received: networks={networks!r}"
            )
        # Not the next class: words are embedded and scored by each network.
        Network.__init__(self, **kwargs)
        self.keep(networks=networks)
        for name in ("source_vocabulary_size", "target_vocabulary_size"):
            sizes = [getattr(each, name) for each in networks]
            if len(set(sizes)) > 1:
                raise ValueError(f"`{name}` of all networks should be one. Received: {sizes}")
            setattr(self, name, sizes[0])
        self.feature_size = self.target_vocabulary_size
        self.share_embeddings = any(each.share_embeddings for each in networks)
        self.has_attention = all(each.has_attention for each in networks)
        self.growing_axes = {
            f"{place} {name}": axis
            for place, each in enumerate(networks)
            for name, axis in each.growing_axes.items()
        }
        self.built = True

    def call(self, inputs, training=None):
        return _mean_of_words([each(inputs, training=training) for each in self.networks])

    def score(self, source, target):
        logits, scores = zip(*(each.score(source, target) for each in self.networks), strict=True)
        return _mean_of_words(logits), self._mean_attention(scores)

    def start(self, source, max_length=None):
        return self._joined([each.start(source, max_length) for each in self.networks])

    def step(self, tokens, state, index=None, words=None):
        logits, states, words = [], [], words or [None] * len(self.networks)
        for place, each in enumerate(self.networks):
            start = f"{place} "
            own = {
                name.removeprefix(start): entry
                for name, entry in state.items()
                if name.startswith(start)
            }
            own["memory"] = state["memory"][place]
            given, own = each.step(tokens, own, index, words[place])
            logits.append(given)
            states.append(own)
        return _mean_of_words(logits), self._joined(states)

    def entries(self):
        own = [each.entries() for each in self.networks]
        return {name: [entry for each in own for entry in each[name]] for name in own[0]}

    def output_of(self, ids):
        return [each.output_of(ids) for each in self.networks]

    def _joined(self, states):
        """Return one state: the constant entries as a list, the rest by the network's number."""
        joined = {"memory": [each["memory"] for each in states]}
        if self.has_attention:
            scores = [each["attention_scores"] for each in states]
            joined["attention_scores"] = self._mean_attention(scores)
        for place, each in enumerate(states):
            joined |= {f"{place} {name}": each[name] for name in each if name != "memory"}
        return joined

    def _mean_attention(self, scores):
        if not self.has_attention:
            return None
        return sum(ops.cast(each, "float32") for each in scores) / len(scores)

    def get_config(self):
        networks = [keras.saving.serialize_keras_object(each) for each in self.networks]
        return {**Network.get_config(self), "networks": networks}


def _mean_of_words(logits):
    """Return the logarithm of the mean of the probabilities that logits stand for."""
    logs = [ops.log_softmax(ops.cast(each, "float32"), axis=-1) for each in logits]
    return ops.logsumexp(ops.stack(logs), axis=0) - math.log(len(logs))
