"""The loop of a GRU with inner attention, as one function with a gradient of its own.

Products with the inputs stand outside: the loop holds only what needs the state before. It keeps
its states, and in training the products with the recurrent kernel too; elsewhere a gradient
computes those once more, in large products. From them the backward pass has the gates of all steps
at once, and everything by which a step's gradient is multiplied, so that its loop too holds little
more than the product with the recurrent kernel.

All sequences here have the time first, `(T, B, ...)`, and a step reads each of them at its place.
That each is an array of its own, and no slice of a wider one, halves the time of a step's
elementwise operations under XLA on a CPU.
"""

import keras
from keras import ops

from keras_attention.layers.cell_products import _outer
from keras_attention.layers.time_loop import LoopCell

GATES = ("update", "reset", "candidate")


class InnerLoop:
    """The states of all steps.

    With `z_t, r_t, p_t` the products of the inputs, `s` the recurrent dropout and `R` the recurrent
    kernel, `u, f = sigmoid([z_t, r_t] + (s h) R)`, the candidate is `c = tanh(p_t + f ((s h) R))`,
    or with `reset_after=False` `tanh(p_t + (f s h) R)`, and `h_t = k h + (1 - k) c`, where `k` is
    `u` as in Keras' GRU, or `1 - u`.

    With a `reader`, the state before the step weighs the step's input: each product `p_t` becomes
    `a_t p_t + b`, `a_t = sigmoid(reader_t . h + asked_t)`.

    Args:
        units: Size of the state.
        reset_after: Whether the reset gate acts after the recurrent product.
        update_keeps: Whether the update gate says how much of the state is kept.
        training: Whether a gradient will be asked for, for which the loop then keeps more.
        unroll: Whether the steps are written out one after the other.
    """

    def __init__(self, units, reset_after, update_keeps, training=False, unroll=False):
        self.units = units
        self.reset_after = reset_after
        self.update_keeps = update_keeps
        self.training = training
        self.unroll = unroll

    def __call__(self, **tensors):
        """Run all steps.

        Args:
            **tensors: `update`, `reset` and `candidate`, the products of the inputs, `(T, B, U)`;
                `first` `(B, U)`; `recurrent` `(U, 3U)`; and where they are not `None`
                `recurrent_bias` `(3U,)`; `mask` `(T, B, 1)` as numbers; `dropout` `(B, U)` of the
                state in the products; `reader` `(T, B, U)`, `asked` `(T, B, 1)`, `bias` `(3U,)`.

        Returns:
            The states `(T, B, U)`.
        """
        tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        names = list(tensors)

        @ops.custom_gradient
        def run(*values):
            given = dict(zip(names, values, strict=True))
            states, *products = self._forward(given)

            def gradient(*args, upstream=None):
                upstream = args[0] if upstream is None else upstream
                gradients = self._backward(given, states, products, upstream)
                return tuple(
                    gradients[name] if name in gradients else ops.zeros_like(given[name])
                    for name in names
                )

            return states, gradient

        return run(*tensors.values())

    def _loop(self, step, count, first, reverse=False):
        """Run `step(place, state) -> (outputs, state)` over all places.

        Returns:
            The list of the outputs' sequences, in the order in which they were made, and the last
            state.
        """
        if self.unroll:
            results, state = [], first
            for place in reversed(range(count)) if reverse else range(count):
                outputs, state = step(place, state)
                results.append(outputs)
            return [ops.stack(column) for column in zip(*results, strict=True)], state

        def at_place(x, states):
            outputs, state = step(x[0, 0], states[0])
            return outputs, [state]

        places = ops.arange(count, dtype="int32")
        places = ops.flip(places, axis=0) if reverse else places
        loop = keras.layers.RNN(LoopCell(at_place), return_sequences=True)
        _, outputs, states = loop.inner_loop(places[None, :, None], [first], mask=None)
        # Keras' loop gives the batch first; when compiled, the two turns cancel out.
        return [ops.transpose(output, (1, 0, 2)) for output in outputs], states[0]

    # Forward.

    def _forward(self, given):
        def step(place, hidden):
            inputs = [given[name][place] for name in GATES]
            if "reader" in given:
                energy = ops.sum(given["reader"][place] * hidden, axis=1, keepdims=True)
                inputs = self._weigh(inputs, ops.sigmoid(energy + given["asked"][place]), given)
            read = hidden * given["dropout"] if "dropout" in given else hidden
            update, _, candidate, _, products = self._gates(inputs, read, given)
            if self.update_keeps:
                after = candidate + update * (hidden - candidate)
            else:
                after = hidden + update * (candidate - hidden)
            if "mask" in given:
                after = ops.where(given["mask"][place] > 0.5, after, hidden)
            return [after, *products] if self.training else [after], after

        return self._loop(step, _length(given), given["first"])[0]

    def _weigh(self, inputs, weight, given):
        """Return weighed products, with the bias; of one step or of all."""
        inputs = [part * weight for part in inputs]
        if "bias" not in given:
            return inputs
        return [a + b for a, b in zip(inputs, ops.split(given["bias"], 3), strict=True)]

    def _gates(self, inputs, read, given, products=()):
        """Return update, reset, candidate, what the reset gate meets, and the products made.

        Of one step or of all, from the recurrent products where they are known.
        """
        units, kernel = self.units, given["recurrent"]
        width = 3 * units if self.reset_after else 2 * units
        recurrent = products[0] if products else ops.matmul(read, kernel[:, :width])
        made = [recurrent]
        if "recurrent_bias" in given:
            recurrent = recurrent + given["recurrent_bias"]
        update = ops.sigmoid(inputs[0] + recurrent[..., :units])
        reset = ops.sigmoid(inputs[1] + recurrent[..., units : 2 * units])
        if self.reset_after:
            inner = recurrent[..., 2 * units :]
            met = reset * inner
        else:
            inner = reset * read
            met = products[1] if products else ops.matmul(inner, kernel[:, 2 * units :])
            made.append(met)
        return update, reset, ops.tanh(inputs[2] + met), inner, made

    # Backward.

    def _backward(self, given, states, products, upstream):
        """Return the gradient of every input that has one."""
        before = ops.concatenate([ops.expand_dims(given["first"], 0), states[:-1]], axis=0)
        slopes = self._slopes(given, before, products)
        step = self._step_back(given, slopes, upstream)
        start = ops.zeros_like(given["first"])
        results, first = self._loop(step, _length(given), start, reverse=True)
        results = [ops.flip(result, axis=0) for result in results]
        return self._gradients(given, before, slopes, results) | {"first": first}

    def _slopes(self, given, before, products):
        """Return by what the gradient of a step's state is multiplied, for all steps at once."""
        read = before * given["dropout"] if "dropout" in given else before
        unweighed = inputs = [given[name] for name in GATES]
        slopes = {"read": read}
        if "reader" in given:
            energy = ops.sum(given["reader"] * before, axis=2, keepdims=True)
            weight = ops.sigmoid(energy + given["asked"])
            inputs = self._weigh(unweighed, weight, given)
            slopes |= {"weight": weight, "steep": weight * (1 - weight)}
        update, reset, candidate, inner, _ = self._gates(inputs, read, given, products)
        new = 1 - update if self.update_keeps else update
        toward = before - candidate if self.update_keeps else candidate - before
        slope = toward * update * (1 - update)
        if "mask" in given:
            new, slope = new * given["mask"], slope * given["mask"]
        slopes |= {"inner": inner, "kept": 1 - new, "update": slope}
        slopes["candidate"] = new * (1 - candidate * candidate)
        opening = reset * (1 - reset)
        if self.reset_after:
            slopes["reset"] = slopes["candidate"] * inner * opening
            slopes["recurrent"] = slopes["candidate"] * reset
        else:
            slopes |= {"reset": read * opening, "open": reset}
        if "reader" in given:
            of_update, of_reset, of_candidate = unweighed
            energy = slopes["update"] * of_update + slopes["candidate"] * of_candidate
            through_reset = slopes["reset"] * of_reset * slopes["steep"]
            energy = energy * slopes["steep"]
            slopes["energy"] = energy + through_reset if self.reset_after else energy
            slopes["energy_by_reset"] = through_reset
        return slopes

    def _step_back(self, given, slopes, upstream):
        """Return the backward loop's step, which gives the gradient of each step's state."""
        kernel = ops.transpose(given["recurrent"])
        gates = 2 * self.units

        def step(place, carried):
            gradient = carried + upstream[place]
            outputs = [gradient]
            update = gradient * slopes["update"][place]
            if self.reset_after:
                products = [update, gradient * slopes["reset"][place]]
                products.append(gradient * slopes["recurrent"][place])
                reached = ops.matmul(ops.concatenate(products, axis=1), kernel)
            else:
                inner = ops.matmul(gradient * slopes["candidate"][place], kernel[gates:])
                outputs.append(inner)
                products = ops.concatenate([update, inner * slopes["reset"][place]], axis=1)
                reached = ops.matmul(products, kernel[:gates]) + inner * slopes["open"][place]
            reached = reached * given["dropout"] if "dropout" in given else reached
            reached = reached + gradient * slopes["kept"][place]
            if "reader" in given:
                energy = gradient * slopes["energy"][place]
                if not self.reset_after:
                    energy = energy + inner * slopes["energy_by_reset"][place]
                energy = ops.sum(energy, axis=1, keepdims=True)
                reached = reached + given["reader"][place] * energy
            return outputs, reached

        return step

    def _gradients(self, given, before, slopes, results):
        """Return the gradients that are one product over all steps."""
        gradient, inner = results[0], results[-1]  # `inner` is the gradient itself with reset_after
        parts = [gradient * slopes["update"], inner * slopes["reset"]]
        parts.append(gradient * slopes["candidate"])
        if self.reset_after:
            recurrent = [*parts[:2], gradient * slopes["recurrent"]]
            gradients = {"recurrent": [_outer(slopes["read"], part) for part in recurrent]}
            if "recurrent_bias" in given:
                gradients["recurrent_bias"] = _sums(recurrent)
        else:
            read = [slopes["read"], slopes["read"], slopes["inner"]]
            pairs = zip(read, parts, strict=True)
            gradients = {"recurrent": [_outer(left, right) for left, right in pairs]}
        gradients["recurrent"] = ops.concatenate(gradients["recurrent"], axis=1)
        if "reader" in given:
            if "bias" in given:
                gradients["bias"] = _sums(parts)
            pairs = zip(parts, (given[name] for name in GATES), strict=True)
            energy = sum(ops.sum(left * right, axis=2, keepdims=True) for left, right in pairs)
            energy = energy * slopes["steep"]
            gradients |= {"asked": energy, "reader": before * energy}
            parts = [part * slopes["weight"] for part in parts]
        return gradients | dict(zip(GATES, parts, strict=True))


def _length(given):
    return ops.shape(given["update"])[0]


def _sums(parts):
    return ops.concatenate([ops.sum(part, axis=(0, 1)) for part in parts])
