"""What `AttentionDecoder` refuses, and how it says so."""

from keras_attention.layers.attention_mechanism import AttentionMechanism
from keras_attention.ops.masks import check_mask

ORDERS = ("previous", "current")


def check_parts(cell, attention, query, attention_size, input_feeding):
    """Refuse constructor arguments that are wrong, or that do not go together."""
    if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
        raise ValueError(
            "`cell` must be a Keras RNN cell (with `call` and `state_size`), such as "
            f"keras.layers.GRUCell(256), or a list of them. Received: cell={cell}"
        )
    if not isinstance(attention, AttentionMechanism):
        raise ValueError(
            "`attention` must be an attention mechanism, such as BahdanauAttention(256). "
            f"Received: attention={attention}"
        )
    if query not in ORDERS:
        raise ValueError(f"`query` must be one of {ORDERS}. Received: query={query!r}")
    if attention_size is not None and (not isinstance(attention_size, int) or attention_size < 1):
        raise ValueError(
            "`attention_size` must be a positive integer or None. "
            f"Received: attention_size={attention_size}"
        )
    if input_feeding and query == "previous":
        raise ValueError(
            "`input_feeding` goes with query='current': with query='previous' the context is fed "
            "to the cell already. Received: query='previous', input_feeding=True"
        )


def check_value(value, mask):
    """Refuse masks that do not fit what they mask; both may be dictionaries of the same keys."""
    if not isinstance(value, dict):
        check_mask(mask, tuple(value.shape[:-1]), "value_mask")
        return
    if mask is not None and (not isinstance(mask, dict) or not set(mask) <= set(value)):
        names = sorted(mask) if isinstance(mask, dict) else type(mask).__name__
        raise ValueError(
            "`value_mask` must be a dictionary with masks of the parts that `value` has, "
            f"{sorted(value)}. Received: {names}"
        )
    for name, part in (mask or {}).items():
        check_mask(part, tuple(value[name].shape[:-1]), f"value_mask[{name!r}]")


def check_shapes(inputs, value):
    """Refuse inputs and a memory that are not two batches of sequences of one batch size."""
    if isinstance(value, dict):
        for name, shape in value.items():
            if None not in (inputs[0], shape[0]) and inputs[0] != shape[0]:
                raise ValueError(
                    "Inputs and all of value must have the same batch size. "
                    f"Received: inputs {tuple(inputs)}, value[{name!r}] {tuple(shape)}"
                )
        return
    shapes = f"Received: inputs {tuple(inputs)}, value {tuple(value)}"
    if len(inputs) != 3 or len(value) != 3:
        raise ValueError(f"Inputs and value must have the shape (batch, steps, features). {shapes}")
    if None not in (inputs[0], value[0]) and inputs[0] != value[0]:
        raise ValueError(f"Inputs and value must have the same batch size. {shapes}")
