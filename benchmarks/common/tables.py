"""Tables for people, in Markdown, and the line on the machine below them."""

from collections.abc import Sequence
from typing import Any


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first of them the head, as a table in Markdown."""
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine_line(facts: dict[str, Any]) -> str:
    """The machine and the versions, in one sentence."""
    versions = ", ".join(
        f"{name} {facts[key]}"
        for name, key in (
            ("Python", "python"),
            ("Keras", "keras"),
            ("TensorFlow", "tensorflow"),
            ("JAX", "jax"),
            ("PyTorch", "torch"),
            ("KerasHub", "keras-hub"),
            ("CTranslate2", "ctranslate2"),
            ("NumPy", "numpy"),
        )
        if facts[key]
    )
    return (
        f"{facts['gpu'] + ', ' if facts.get('gpu') else ''}{facts['processor']}, "
        f"{facts['cores']} cores, {facts['system']}; {versions}; "
        f"load average before the start {facts['load_before']}."
    )
