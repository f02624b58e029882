"""The reductions of losses over tokens."""

REDUCTIONS = ("mean_with_sample_weight", "sum", "none", None)


def check_reduction(reduction):
    """Refuse a reduction that would divide by padding."""
    if reduction not in REDUCTIONS:
        raise ValueError(
            "`reduction` must be 'mean_with_sample_weight' (the mean over real tokens), 'sum' "
            f"or 'none'. Received: reduction={reduction!r}"
        )
