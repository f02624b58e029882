"""The settings of a pretrained backbone, which are the same in all tasks that read one."""

from typing import Any

from ..errors import UserError
from .keys import Config, Section, key

ARCHITECTURE = "backbone"


def backbone_key() -> Any:
    """Return the key that names a backbone."""
    return key(
        None,
        "the name of a preset of keras_hub, like bert_tiny_en_uncased, or a folder that "
        "save_to_preset wrote, tokenizer and all",
        applies_to={"architecture": (ARCHITECTURE,)},
        common=True,
    )


def fine_tune_key() -> Any:
    """Return the key that says whether a backbone is trained."""
    return key(
        None,
        "train the backbone, too; else it is frozen and gives features",
        applies_to={"architecture": (ARCHITECTURE,)},
        null={ARCHITECTURE: False},
    )


def check_named(model: Section) -> None:
    """Refuse a `model` section of this architecture without a backbone."""
    if model.architecture == ARCHITECTURE and not model.backbone:
        raise UserError(
            "model.architecture backbone needs model.backbone: the name of a preset of "
            "keras_hub, like bert_tiny_en_uncased, or a folder that save_to_preset wrote."
        )


def refuse_beside_backbone(config: Config) -> None:
    """Refuse vectors and keys of a tokenizer beside a backbone, which has its own."""
    if config.model.architecture != ARCHITECTURE:
        return
    why = "does not apply to model.architecture backbone, which has its own"
    for section in (config.vectors, config.tokenizer):
        for name in vars(section):
            section.refuse_unused(name, why)
