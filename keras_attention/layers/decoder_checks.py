"""What `AttentionDecoder` refuses, and how it says so."""

from keras_attention.layers.attention_mechanism import AttentionMechanism

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


def check_shapes(inputs, value):
    """Refuse inputs and a memory that are not two batches of sequences of one batch size."""
    shapes = f"Received: inputs {tuple(inputs)}, value {tuple(value)}"
    if len(inputs) != 3 or len(value) != 3:
        raise ValueError(f"Inputs and value must have the shape (batch, steps, features). {shapes}")
    if None not in (inputs[0], value[0]) and inputs[0] != value[0]:
        raise ValueError(f"Inputs and value must have the same batch size. {shapes}")
