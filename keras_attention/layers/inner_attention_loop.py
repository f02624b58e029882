"""The loop of a GRU with inner attention, as one function with a gradient of its own.

Products with the inputs stand outside: the loop holds only what needs the state before. It keeps
nothing but its states. For the backward pass, the gates of all steps are computed once more from
those in large products, and with them everything by which a step's gradient is multiplied, so
that the backward loop too has little more than the product with the recurrent kernel.

All sequences here have the time first, `(T, B, ...)`.
"""

import keras
from keras import ops

from keras_attention.layers.cell_products import _outer
from keras_attention.layers.decoder_loop import LoopCell


class InnerLoop:
    """The states of all steps.

    With `p_t` the products of the inputs, `s` the recurrent dropout and `R` the recurrent kernel,
    `u, r = sigmoid(p_t + (s h) R)`, the candidate `c = tanh(p_t + r ((s h) R))`, or with
    `reset_after=False` `tanh(p_t + (r s h) R)`, and `h_t = k h + (1 - k) c`, where `k` is `u` as
    in Keras' GRU, or `1 - u`.

    With `weighted`, the state before the step weighs the step's input: `p_t` becomes
    `a_t p_t + b`, `a_t = sigmoid(reader_t . h + asked_t)`.

    Args:
        units: Size of the state.
        reset_after: Whether the reset gate acts after the recurrent product.
        update_keeps: Whether the update gate says how much of the state is kept.
        weighted: Whether the state weighs the inputs.
        unroll: Whether the steps are written out one after the other.
    """

    def __init__(self, units, reset_after, update_keeps, weighted=False, unroll=False):
        self.units = units
        self.reset_after = reset_after
        self.update_keeps = update_keeps
        self.weighted = weighted
        self.unroll = unroll

    def __call__(self, **tensors):
        """Run all steps.

        Args:
            **tensors: `inputs` `(T, B, 3U)`; `first` `(B, U)`; `recurrent` `(U, 3U)`; where there
                are such, `recurrent_bias` `(3U,)`, `mask` `(T, B, 1)` as numbers, `dropout`
                `(B, U)` of the state in the products; with `weighted` `inputs` `(T, B, 4U)`, the
                last `U` of which are the reader, `asked` `(T, B, 1)` and `bias` `(3U,)`.

        Returns:
            The states `(T, B, U)`.
        """
        tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        names = list(tensors)

        @ops.custom_gradient
        def run(*values):
            given = dict(zip(names, values, strict=True))
            states = self._forward(given)

            def gradient(*args, upstream=None):
                upstream = args[0] if upstream is None else upstream
                gradients = self._backward(given, states, upstream)
                return tuple(
                    gradients[name] if name in gradients else ops.zeros_like(given[name])
                    for name in names
                )

            return states, gradient

        return run(*tensors.values())

    def _loop(self, step, sequence, states):
        """Run `step(x, states) -> (outputs, states)`; the outputs' sequences, the last states."""
        loop = keras.layers.RNN(LoopCell(step), return_sequences=True, unroll=self.unroll)
        # Keras' loop turns sequences round at both ends; two turns cancel out when compiled.
        _, outputs, states = loop.inner_loop(_turned(sequence), states, mask=None)
        return [_turned(output) for output in outputs], list(states)

    # Forward.

    def _forward(self, given):
        units = self.units

        def step(projected, states):
            hidden, place = states
            if self.weighted:
                reader = projected[:, 3 * units :]
                energy = ops.sum(reader * hidden, axis=1, keepdims=True)
                weight = ops.sigmoid(energy + ops.take(given["asked"], place, axis=0))
                projected = projected[:, : 3 * units] * weight
                projected = projected + given["bias"] if "bias" in given else projected
            read = hidden * given["dropout"] if "dropout" in given else hidden
            update, _, candidate, _ = self._gates(projected, read, given)
            if self.update_keeps:
                after = candidate + update * (hidden - candidate)
            else:
                after = hidden + update * (candidate - hidden)
            if "mask" in given:
                real = ops.take(given["mask"], place, axis=0) > 0.5
                after = ops.where(real, after, hidden)
            return [after], [after, place + 1]

        start = [given["first"], ops.zeros((), "int32")]
        (states,), _ = self._loop(step, given["inputs"], start)
        return states

    def _gates(self, projected, read, given):
        """Return update, reset, candidate and what the reset gate meets; of one step or of all."""
        units, kernel = self.units, given["recurrent"]
        width = 3 * units if self.reset_after else 2 * units
        recurrent = ops.matmul(read, kernel[:, :width])
        if "recurrent_bias" in given:
            recurrent = recurrent + given["recurrent_bias"]
        gates = ops.sigmoid(projected[..., : 2 * units] + recurrent[..., : 2 * units])
        update, reset = gates[..., :units], gates[..., units:]
        if self.reset_after:
            inner = recurrent[..., 2 * units :]
            met = reset * inner
        else:
            inner = reset * read
            met = ops.matmul(inner, kernel[:, 2 * units :])
        return update, reset, ops.tanh(projected[..., 2 * units : 3 * units] + met), inner

    # Backward.

    def _backward(self, given, states, upstream):
        """Return the gradient of every input that has one."""
        before = ops.concatenate([ops.expand_dims(given["first"], 0), states[:-1]], axis=0)
        parts = self._slopes(given, before)
        rows = [parts["update"], parts["reset"], parts["kept"], upstream]
        if self.reset_after:
            rows.append(parts["recurrent"])
        else:
            rows += [parts["candidate"], parts["open"]]
        if self.weighted:
            rows += [given["inputs"][..., 3 * self.units :], *parts["weights"]]
        sequence = ops.flip(ops.concatenate(rows, axis=2), axis=0)
        step = self._step_back(given)
        results, (first,) = self._loop(step, sequence, [ops.zeros_like(given["first"])])
        results = [ops.flip(result, axis=0) for result in results]
        return self._gradients(given, before, parts, results) | {"first": first}

    def _slopes(self, given, before):
        """Return by what the gradient of a step's state is multiplied, for all steps at once."""
        units, parts = self.units, {}
        read = before * given["dropout"] if "dropout" in given else before
        projected = given["inputs"][..., : 3 * units]
        if self.weighted:
            reader = given["inputs"][..., 3 * units :]
            energy = ops.sum(reader * before, axis=2, keepdims=True) + given["asked"]
            weight = ops.sigmoid(energy)
            weighed = projected * weight
            gates = weighed + given["bias"] if "bias" in given else weighed
        else:
            gates = projected
        update, reset, candidate, inner = self._gates(gates, read, given)
        new = 1 - update if self.update_keeps else update
        toward = candidate - before
        slope = toward * update * (1 - update)
        slope = -slope if self.update_keeps else slope
        if "mask" in given:
            new, slope = new * given["mask"], slope * given["mask"]
        parts |= {"read": read, "inner": inner, "kept": 1 - new, "update": slope}
        parts["candidate"] = new * (1 - candidate * candidate)
        opening = reset * (1 - reset)
        if self.reset_after:
            parts["reset"] = parts["candidate"] * inner * opening
            parts["recurrent"] = parts["candidate"] * reset
        else:
            parts["reset"] = read * opening
            parts["open"] = reset
        if self.weighted:
            steep = weight * (1 - weight)
            of_update, of_reset, of_candidate = ops.split(projected * steep, 3, axis=2)
            own = parts["update"] * of_update + parts["candidate"] * of_candidate
            through_reset = parts["reset"] * of_reset
            parts["weights"] = [own + through_reset] if self.reset_after else [own, through_reset]
            parts |= {"weight": weight, "steep": steep}
        return parts

    def _step_back(self, given):
        """Return the backward loop's step: the gradient of each step's state."""
        units = self.units
        kernel = ops.transpose(given["recurrent"])

        def step(x, states):
            pieces = iter(range(0, x.shape[1], units))

            def piece():
                start = next(pieces)
                return x[:, start : start + units]

            update, reset, kept, upstream = piece(), piece(), piece(), piece()
            gradient = states[0] + upstream
            if self.reset_after:
                products = [gradient * update, gradient * reset, gradient * piece()]
                reached = ops.matmul(ops.concatenate(products, axis=1), kernel)
                outputs = [gradient]
            else:
                inner = ops.matmul(gradient * piece(), kernel[2 * units :])
                products = ops.concatenate([gradient * update, inner * reset], axis=1)
                reached = ops.matmul(products, kernel[: 2 * units]) + inner * piece()
                outputs = [gradient, inner]
            reached = reached * given["dropout"] if "dropout" in given else reached
            reached = reached + gradient * kept
            if self.weighted:
                reader, energy = piece(), gradient * piece()
                energy = energy if self.reset_after else energy + inner * piece()
                reached = reached + reader * ops.sum(energy, axis=1, keepdims=True)
            return outputs, [reached]

        return step

    def _gradients(self, given, before, parts, results):
        """Return the gradients that are one product over all steps."""
        gradient = results[0]
        update, candidate = gradient * parts["update"], gradient * parts["candidate"]
        reset = (gradient if self.reset_after else results[1]) * parts["reset"]
        projected = ops.concatenate([update, reset, candidate], axis=2)
        if self.reset_after:
            recurrent = [update, reset, gradient * parts["recurrent"]]
            recurrent = ops.concatenate(recurrent, axis=2)
            gradients = {"recurrent": _outer(parts["read"], recurrent)}
            if "recurrent_bias" in given:
                gradients["recurrent_bias"] = ops.sum(recurrent, axis=(0, 1))
        else:
            of_gates = _outer(parts["read"], projected[..., : 2 * self.units])
            of_candidate = _outer(parts["inner"], candidate)
            gradients = {"recurrent": ops.concatenate([of_gates, of_candidate], axis=1)}
        if not self.weighted:
            return gradients | {"inputs": projected}
        products = given["inputs"][..., : 3 * self.units]
        energy = ops.sum(projected * products, axis=2, keepdims=True) * parts["steep"]
        if "bias" in given:
            gradients["bias"] = ops.sum(projected, axis=(0, 1))
        pieces = [projected * parts["weight"], before * energy]
        return gradients | {"inputs": ops.concatenate(pieces, axis=2), "asked": energy}


def _turned(sequence):
    return ops.transpose(sequence, (1, 0, 2))
