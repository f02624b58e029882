"""Tags that mark spans of words by their prefix: which of them may follow each other."""

from collections.abc import Sequence

SCHEMES = ("BIO", "IOB2", "BIOES")
OUTSIDE = "O"


def forbidden_transitions(
    tags: Sequence[str], scheme: str = "BIO"
) -> list[tuple[int | None, int | None]]:
    """Return the pairs of tags that never follow each other in a scheme.

    - `"BIO"`, which is also called `"IOB2"`: a span of a type starts with `B-type` and goes on with
      `I-type`; `O` is outside of all spans.
    - `"BIOES"`: a span of several words ends with `E-type`, and a single word is `S-type`.

    Args:
        tags: The names of the tags, in the order of their ids.
        scheme: One of the above.

    Returns:
        Pairs of ids, `None` for the start and the end of a sequence: the `forbidden` of
        [CRF][keras_attention.layers.CRF].

    Raises:
        ValueError: If the scheme is another, a tag does not belong to it, or comes twice.

    Example:

    >>> forbidden_transitions(["O", "B-PER", "I-PER"], "BIO")
    [(0, 2), (None, 2)]
    """
    if scheme not in SCHEMES:
        raise ValueError(f"`scheme` must be one of {SCHEMES}. Received: scheme={scheme!r}")
    is_list = not isinstance(tags, str) and hasattr(tags, "__len__")
    are_names = is_list and all(isinstance(tag, str) for tag in tags)
    if not are_names or len(set(tags)) < len(tags):
        raise ValueError(
            "`tags` must be a list of the names of the tags, each once, such as ['O', 'B-PER', "
            f"'I-PER']. Received: tags={tags!r}"
        )
    parts = [split_tag(tag, "BIOES" if scheme == "BIOES" else "BIO") for tag in tags]
    places = [*enumerate(parts), (None, (OUTSIDE, ""))]
    return [
        (before, after)
        for before, left in places
        for after, right in places
        if not (before is None and after is None) and not _can_follow(left, right, scheme)
    ]


def split_tag(tag: str, prefixes: str = "BIOES") -> tuple[str, str]:
    """Return the prefix and the type of a tag: `("B", "PER")` of `B-PER`, `("O", "")` of `O`."""
    prefix, _, kind = tag.partition("-")
    if prefix not in tuple(prefixes) or (prefix == OUTSIDE and kind):
        others = ", ".join(f"{letter}-type" for letter in prefixes if letter != OUTSIDE)
        raise ValueError(
            f"Each tag must be {OUTSIDE} or begin with a letter of the scheme: {others}. "
            f"Received: {tag!r}"
        )
    return prefix, kind


def _can_follow(left: tuple[str, str], right: tuple[str, str], scheme: str) -> bool:
    is_inside = right[0] in "IE"
    same = left[1] == right[1]
    if scheme == "BIOES":
        is_open = left[0] in "BI"
        return is_inside and same if is_open else not is_inside
    return not is_inside or (left[0] in "BI" and same)
