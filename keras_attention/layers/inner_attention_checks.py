"""What `InnerAttentionGRU` and its cell refuse, and how they say so."""

from keras_attention.ops.masks import check_mask

KINDS = ("gate", "word", "context")


def check_arguments(units, attention, reset_after, occam, occam_minimum):
    """Refuse constructor arguments that are wrong, or that do not go together."""
    if not isinstance(units, int) or units < 1:
        raise ValueError(f"`units` must be a positive integer. Received: units={units}")
    if attention not in KINDS:
        raise ValueError(f"`attention` must be one of {KINDS}. Received: attention={attention!r}")
    if attention == "gate" and reset_after:
        raise ValueError(
            "attention='gate' has its reset gate before the recurrent product; `reset_after=True` "
            "goes with 'word' and 'context'. Received: attention='gate', reset_after=True"
        )
    if attention == "gate" and occam:
        raise ValueError(
            "Occam's penalty needs the weight of each word, which attention='word' and 'context' "
            "have. Received: attention='gate', occam=True"
        )
    if not occam_minimum > 0:
        raise ValueError(
            f"`occam_minimum` must be above 0. Received: occam_minimum={occam_minimum}"
        )


def check_rates(**rates):
    """Refuse rates of dropout outside of [0, 1)."""
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"`{name}` must lie in [0, 1). Received: {name}={rate}")


def check_scores_wanted(attention, wanted):
    """Refuse to give weights of the kind that has none."""
    if wanted and attention == "gate":
        raise ValueError(
            "`return_attention_scores` goes with attention='word' or 'context': with 'gate' the "
            "query acts inside of the gates and weighs no word as a whole. "
            "Received: attention='gate', return_attention_scores=True"
        )


def check_call(cell, inputs, query, mask, return_attention_scores):
    """Refuse arguments of a call that fit neither each other nor the layer."""
    check_scores_wanted(cell.attention, return_attention_scores)
    check_shapes(inputs.shape, None if query is None else query.shape)
    check_mask(mask, tuple(inputs.shape[:2]), "mask")
    sizes = (inputs.shape[-1], (inputs if query is None else query).shape[-1])
    if cell.built and sizes != (cell.input_size, cell.query_size):
        raise ValueError(
            f"The layer was built for inputs of {cell.input_size} features and a query of "
            f"{cell.query_size}. Received: inputs of {sizes[0]}, a query of {sizes[1]}"
            + (" (the mean of the inputs, since none was given)" if query is None else "")
        )


def check_step(cell, inputs, states, query, return_attention_scores):
    """Refuse arguments of one step that fit neither each other nor the cell."""
    check_scores_wanted(cell.attention, return_attention_scores)
    state = states[0] if isinstance(states, (list, tuple)) else states
    query = inputs if query is None else query
    shapes = [tuple(tensor.shape) for tensor in (inputs, state, query)]
    sizes = (cell.input_size, cell.units, cell.query_size)
    fits = [len(shape) == 2 and shape[1] == n for shape, n in zip(shapes, sizes, strict=True)]
    if not all(fits) or len({shape[0] for shape in shapes} - {None}) > 1:
        raise ValueError(
            "The cell was built for inputs, a state and a query of one batch and of the sizes "
            f"{sizes}. Received: shapes {shapes}"
        )


def check_shapes(inputs, query):
    """Refuse shapes that are not those of a batch of sequences and a batch of queries."""
    shapes = f"Received: inputs {tuple(inputs)}"
    shapes += "" if query is None else f", query {tuple(query)}"
    if len(inputs) != 3 or (query is not None and len(query) != 2):
        raise ValueError(
            f"Inputs must have the shape (batch, steps, features), a query (batch, size). {shapes}"
        )
    if query is not None and None not in (inputs[0], query[0]) and inputs[0] != query[0]:
        raise ValueError(f"Inputs and query must have the same batch size. {shapes}")
    if inputs[2] is None or (query is not None and query[1] is None):
        raise ValueError(f"The last axis of inputs and query must be known. {shapes}")


def check_state(state, expected):
    """Refuse a first state that is not of the shape `(batch, units)`."""
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    shapes = [tuple(one.shape) for one in states]
    fits = len(shapes) == 1 and len(shapes[0]) == 2 and shapes[0][1] == expected[1]
    if not fits or (None not in (shapes[0][0], expected[0]) and shapes[0][0] != expected[0]):
        raise ValueError(
            f"The state before the first step must be one tensor of shape {expected}, a row for "
            f"each example of the batch. Received: {len(shapes)} of shapes {shapes}"
        )
