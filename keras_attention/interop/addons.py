"""TensorFlow Addons' `AttentionWrapper` as a decoder of this package, from its weights alone."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from ..layers import AttentionDecoder, BahdanauAttention, LuongAttention, MonotonicAttention
from .arrays import Arrays, assign

MECHANISMS = ("bahdanau", "luong", "bahdanau_monotonic", "luong_monotonic")
CELLS = (keras.layers.GRUCell, keras.layers.LSTMCell, keras.layers.SimpleRNNCell)


def from_attention_wrapper(
    cell: Any,
    mechanism: str,
    weights: Mapping[str, Any],
    attention_activation: Any = None,
    output_attention: bool = True,
    monotonic_mode: str = "soft",
) -> AttentionDecoder:
    """Return a decoder that computes what TensorFlow Addons' `AttentionWrapper` computes.

    The wrapper's equations, with the cell's output `h_t`, the context `c_t` and the memory `m`:

    `h_t = cell([x_t; a_{t-1}])`, `a_t = f([h_t; c_t] W)`, `a_0 = 0`; without an attention layer,
    `a_t = c_t`

    `LuongAttention`: `e_ts = h_t . (m_s W_m)`, with `scale=True` `g e_ts`; `BahdanauAttention`:
    `e_ts = v . tanh(h_t W_q + m_s W_m)`, with `normalize=True`
    `e_ts = g v / |v| . tanh(h_t W_q + m_s W_m + b)`; the monotonic mechanisms add a number `r`

    The decoder has `query="current"` and `input_feeding=True`. Its kernel of the attentional vector
    has the rows of the context first.

    Args:
        cell: The wrapped cell, a `GRUCell`, `LSTMCell` or `SimpleRNNCell` of Keras, or a list of
            them for a stack. Its weights are set here.
        mechanism: `"bahdanau"`, `"luong"`, `"bahdanau_monotonic"` or `"luong_monotonic"`.
        weights: Arrays by the names of the wrapper's checkpoint:

            - `cell/kernel`, `cell/recurrent_kernel`, `cell/bias`; of a list of cells
              `cell/cells/0/kernel`, and so on
            - `memory_layer/kernel`
            - with `"bahdanau"` `query_layer/kernel` and `attention_v`; with `normalize=True` also
              `attention_g` and `attention_b`
            - with `"luong"` and `scale=True` `attention_g`
            - with the monotonic mechanisms also `attention_score_bias`
            - with an attention layer `attention_layer/kernel`
        attention_activation: Activation of the attention layer. Default: none, as with
            `attention_layer_size`.
        output_attention: As in the wrapper. With False, the wrapper's output is `h_t`. The decoder
            still gives `[a_t; h_t]`, whose last features are that output: `attention_activation`
            must then be `None`.
        monotonic_mode: The `mode` of `MonotonicAttention`. `"parallel"` and `"recursive"` of the
            wrapper are `"soft"`; `"auto"` is soft in training and hard otherwise.

    Returns:
        A built `AttentionDecoder`.

    Raises:
        ValueError: Where weights are missing, are left over, or do not fit each other.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention.interop import from_attention_wrapper

    shapes = {
        "cell/kernel": (6 + 5, 4 * 8),
        "cell/recurrent_kernel": (8, 4 * 8),
        "cell/bias": (4 * 8,),
        "memory_layer/kernel": (12, 8),
        "attention_layer/kernel": (8 + 12, 5),
    }
    weights = {name: np.random.normal(size=shape) for name, shape in shapes.items()}
    decoder = from_attention_wrapper(keras.layers.LSTMCell(8), "luong", weights)
    inputs, memory = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 7, 12))
    assert decoder(inputs, memory).shape == (2, 3, 5)
    ```
    """
    if mechanism not in MECHANISMS:
        raise ValueError(
            f"`mechanism` must be one of {MECHANISMS}. Received: mechanism={mechanism!r}"
        )
    cells = cell if isinstance(cell, (list, tuple)) else [cell]
    if not cells or not all(isinstance(one, CELLS) for one in cells):
        raise ValueError(
            "`cell` must be a GRUCell, LSTMCell or SimpleRNNCell of Keras, or a list of them; for "
            f"others, build an `AttentionDecoder` and set its weights. Received: cell={cell}"
        )
    is_linear = keras.activations.get(attention_activation) is keras.activations.linear
    arrays = Arrays(weights, "weights")
    kernel = arrays.get("attention_layer/kernel")
    if not is_linear and (kernel is None or not output_attention):
        raise ValueError(
            "`attention_activation` must be None with output_attention=False, and without an "
            f"attention layer. Received: attention_activation={attention_activation}, "
            f"output_attention={output_attention}, and "
            f"{'no' if kernel is None else 'an'} `attention_layer/kernel`"
        )
    attention, memory_size = _mechanism(mechanism, arrays, monotonic_mode)
    units = cells[-1].units
    if kernel is None:  # the attention is the context
        kernel = np.concatenate([np.zeros((units, memory_size)), np.eye(memory_size)])
    size = kernel.shape[1]
    if not output_attention:  # the cell's output goes beside it, and is not fed back
        hidden = np.concatenate([np.eye(units), np.zeros((memory_size, units))])
        kernel = np.concatenate([kernel, hidden], axis=1)
    decoder = AttentionDecoder(
        cell,
        attention,
        query="current",
        attention_size=kernel.shape[1],
        input_feeding=True,
        attention_activation=attention_activation,
    )
    names = [f"cell/cells/{i}/" for i in range(len(cells))] if cells is cell else ["cell/"]
    first = arrays[f"{names[0]}kernel"]
    if first.shape[0] <= size:
        raise ValueError(
            f"`{names[0]}kernel` must have a row for each feature of the inputs and each of the "
            f"{size} of the attention that is fed back. Received: an array of shape {first.shape}"
        )
    fed = kernel.shape[1] - size
    decoder.build((None, None, first.shape[0] - size), (None, None, memory_size))
    for i, (one, name) in enumerate(zip(cells, names, strict=True)):
        values = {"kernel": arrays[f"{name}kernel"]}
        if i == 0:
            values["kernel"] = np.concatenate([first, np.zeros((fed, first.shape[1]))])
        values["recurrent_kernel"] = arrays[f"{name}recurrent_kernel"]
        if one.use_bias:
            values["bias"] = arrays[f"{name}bias"]
        assign(one, **values)
    _assign_mechanism(attention, arrays)
    # The rows of the context come first here.
    assign(decoder, attentional_kernel=np.concatenate([kernel[units:], kernel[:units]]))
    arrays.check_all_read()
    return decoder


def _mechanism(name: str, arrays: Arrays, mode: str) -> tuple[Any, int]:
    """Return the mechanism, and the size of the memory."""
    memory_size, units = arrays["memory_layer/kernel"].shape
    is_scaled = "attention_g" in arrays
    attention = (
        LuongAttention("general", scale=is_scaled)
        if name.startswith("luong")
        else BahdanauAttention(units, normalize=is_scaled)
    )
    is_monotonic = name.endswith("_monotonic")
    return MonotonicAttention(attention, mode=mode) if is_monotonic else attention, memory_size


def _assign_mechanism(attention: Any, arrays: Arrays) -> None:
    if isinstance(attention, MonotonicAttention):
        assign(attention, energy_bias=arrays["attention_score_bias"])
        attention = attention.mechanism
    values = {"gain": arrays["attention_g"]} if "attention_g" in arrays else {}
    if isinstance(attention, LuongAttention):
        return assign(attention, score_kernel=arrays["memory_layer/kernel"].T, **values)
    values["score_vector"] = arrays["attention_v"]
    if attention.use_bias:
        values["bias"] = arrays["attention_b"]
    kernels = {"query_kernel": arrays["query_layer/kernel"]}
    assign(attention, **kernels, key_kernel=arrays["memory_layer/kernel"], **values)
