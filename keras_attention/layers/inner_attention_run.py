"""`InnerAttentionGRU` over a whole sequence: what stands outside of the loop."""

from keras import ops

from keras_attention.layers.inner_attention_loop import GATES, InnerLoop
from keras_attention.layers.inner_attention_stock import stock_gru


def run_inner_attention(
    cell, inputs, query, mask, first, training=False, unroll=False, use_cudnn=None
):
    """Run a cell over all steps.

    Args:
        cell: A built `InnerAttentionGRUCell`.
        inputs: `(B, T, D)`, zeros where masked.
        query: `(B, Q)`.
        mask: Boolean `(B, T)`, or `None`.
        first: The state before the first step, `(B, U)`.
        training: Whether dropout applies, and a gradient will be asked for.
        unroll: Whether the loop is written out.
        use_cudnn: `"auto"` or `True` to run `"word"` on Keras' GRU; `None` for the loop here.

    Returns:
        The states `(B, T, U)`, and the weights `(B, T)` or `None`.
    """
    dropped = inputs
    if training and cell.dropout:
        dropped = inputs * ops.expand_dims(cell.get_dropout_mask(inputs[:, 0]), 1)
    dropout = cell.recurrent_mask(first, training)
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
    scores = None
    if cell.attention == "word":
        weights = ops.sigmoid(_asked(cell, inputs, query))
        dropped, scores = dropped * weights, ops.squeeze(weights, 2)
        if use_cudnn is not None and dropout is None:
            return stock_gru(cell, dropped, first, mask, use_cudnn), scores
    tensors = {
        "first": first,
        "recurrent": cell.cast(cell.recurrent_kernel),
        "recurrent_bias": cell.recurrent_bias(),
        "dropout": dropout,
        "mask": None if mask is None else _turned(ops.cast(mask, inputs.dtype)[..., None]),
    }
    loop = InnerLoop(cell.units, cell.reset_after, cell.update_keeps, training, unroll)
    shift, weighted = cell.input_shift(query), cell.attention == "context"
    tensors |= _products(cell, _turned(dropped), None if weighted else shift)
    if not weighted:
        return _turned(loop(**tensors)), scores
    # w . x_t with w = M_h h + M_q r is (M_h' x_t) . h + (M_q r) . x_t: both are products of the
    # inputs, and only a dot product with the state is left to the loop.
    reader = ops.matmul(_turned(inputs), ops.transpose(cell.cast(cell.recurrent_attention_kernel)))
    asked = _turned(_asked(cell, inputs, query))
    states = loop(reader=reader, asked=asked, bias=shift, **tensors)
    before = ops.concatenate([ops.expand_dims(first, 0), states[:-1]], axis=0)
    weights = ops.sigmoid(ops.sum(reader * before, axis=2, keepdims=True) + asked)
    return _turned(states), ops.squeeze(_turned(weights), 2)


def _products(cell, inputs, shift):
    """Return the products of the inputs `(T, B, D)` with each of the kernel's blocks."""
    products = {}
    for place, name in enumerate(GATES):
        block = slice(place * cell.units, (place + 1) * cell.units)
        products[name] = ops.matmul(inputs, cell.cast(cell.kernel)[:, block])
        if shift is not None:
            products[name] = products[name] + shift[..., block]
    return products


def _asked(cell, inputs, query):
    """Return `(M_q r) . x_t` of all steps, `(B, T, 1)`."""
    return ops.matmul(inputs, ops.expand_dims(cell.asked(query), 2))


def _turned(sequence):
    """Return a sequence with batch and time exchanged."""
    return ops.transpose(sequence, (1, 0, 2))
