"""A pointer-generator of this package's layers, called as a user calls them."""

import keras
from keras import ops

from benchmarks.speed.contenders.keras_program import KerasProgram
from benchmarks.speed.problems import vocabulary_of
from keras_attention.layers import AttentionDecoder, CoverageAttention, PointerGenerator
from keras_attention.losses import coverage_loss


class OurPointerGenerator(KerasProgram):
    """`AttentionDecoder` over an LSTM with `CoverageAttention`, a readout, `PointerGenerator`."""

    arrays = ("inputs", "value", "mask", "states", "source_ids", "labels")

    def build(self, problem):
        size, units, words = problem.size, problem.size.units, vocabulary_of(problem.size.units)
        decoder = AttentionDecoder(
            keras.layers.LSTMCell(units),
            CoverageAttention(units),
            query="current",
            input_feeding=True,
        )
        steps = (size.batch, size.steps, units)
        decoder.build(steps, (size.batch, size.memory, units))
        readout, pointer = keras.layers.Dense(words), PointerGenerator()
        readout.build(steps)
        logits, scores = (*steps[:2], words), (*steps[:2], size.memory)
        pointer.build(logits, scores, (size.batch, size.memory), steps, steps, steps)
        self._decoder, self._readout, self._pointer = decoder, readout, pointer
        names = ("query_kernel", "key_kernel", "score_vector", "coverage_vector")
        variables = {name: getattr(decoder.attention, name) for name in names}
        for name in ("kernel", "recurrent_kernel", "bias"):
            variables[name] = getattr(decoder.cell, name)
        variables["attentional_kernel"] = decoder.attentional_kernel
        variables |= {"readout_kernel": readout.kernel, "readout_bias": readout.bias}
        for name in ("context_vector", "state_vector", "input_vector"):
            variables[name] = getattr(pointer, name)
        return variables | {"gate_bias": pointer.bias}

    def call(self, inputs, value, mask, states, source_ids, labels):
        """Return the loss of each step: of its word, and of all that is read again."""
        outputs, contexts, scores = self._decoder(
            inputs,
            value,
            initial_state=[states[0], states[1]],
            value_mask=mask,
            return_attention_scores=True,
            return_context=True,
        )
        log_p = self._pointer.log_likelihood(
            labels, self._readout(outputs), scores, source_ids, contexts, outputs, inputs
        )
        return coverage_loss(scores) - log_p

    def loss(self, outputs, targets):
        return ops.mean(outputs)
