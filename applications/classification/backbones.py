"""Pretrained backbones of keras_nlp: found, checked, and kept in a run folder.

keras_nlp takes seconds to import, and is imported only where a run has a backbone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from keras_attention.applications.classification.backbone_encoder import OFFSET
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.common.checks import did_you_mean
from keras_attention.applications.common.errors import UserError, one_line

if TYPE_CHECKING:
    import tensorflow as tf

FOLDER = "backbone"
CONFIG = "config.json"
WRITTEN_BY = "Expected a folder that backbone.save_to_preset and tokenizer.save_to_preset wrote."
READS = {"token_ids", "padding_mask", "segment_ids"}


class BackboneTokenizer:
    """The tokenizer of a backbone, as readers and exported graphs use one.

    Its ids are those of the backbone's vocabulary plus 4, as the ids below are taken.

    Args:
        tokenizer: a tokenizer of `keras_nlp`.
    """

    def __init__(self, tokenizer):
        import tensorflow as tf

        self.tokenizer = tokenizer
        # The graph that is exported: keras_nlp has another way for strings outside of one.
        text = tf.TensorSpec([None], tf.string)
        self._encode = tf.function(self.in_graph().encode, input_signature=[text], autograph=False)

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, those below the backbone's included."""
        return self.tokenizer.vocabulary_size() + OFFSET

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without marks."""
        import tensorflow as tf

        return self._encode(tf.constant(list(lines), tf.string)).to_list()

    def tokens(self, line: str) -> list[str]:
        """Return the tokens of a line, written as the vocabulary has them."""
        return [self.tokenizer.id_to_token(index - OFFSET) for index in self.encode([line])[0]]

    def in_graph(self) -> "tf.Module":
        """Return a `tf.Module` with `encode`, from strings `(B,)` to ragged ids."""
        from keras_attention.applications.classification.backbone_graph import TokenizerGraph

        return TokenizerGraph(self.tokenizer, OFFSET)


@dataclass(frozen=True)
class Pretrained:
    """A backbone and what belongs to it.

    Args:
        backbone: the model.
        tokenizer: its tokenizer.
        marks: the ids `start`, `separator`, `end` and `padding` that it was trained with.
    """

    backbone: keras.Model
    tokenizer: BackboneTokenizer
    marks: dict

    def save(self, folder: Path) -> None:
        """Write it into `folder`, as `load_pretrained` reads it."""
        self.backbone.save_to_preset(str(folder))
        self.tokenizer.tokenizer.save_to_preset(str(folder))

    def check_length(self, config: ClassificationConfig) -> None:
        """Refuse texts that are longer than what the backbone has places for.

        Raises:
            UserError: naming the length that is possible.
        """
        places = getattr(self.backbone, "max_sequence_length", None)
        texts = 2 if config.data.second_column else 1
        marks = len(self.marks["start"]) + len(self.marks["end"])
        marks += len(self.marks["separator"]) * (texts - 1)
        if places is None or texts * config.data.max_length + marks <= places:
            return
        raise UserError(
            f"model.backbone {config.model.backbone} reads {places} tokens at most, {marks} marks "
            f"among them: data.max_length must be at most {(places - marks) // texts}"
            f"{' for each text of a pair' if texts > 1 else ''}. "
            f"Received: {config.data.max_length}."
        )


def load_pretrained(source: Path | str, weights: bool = True) -> Pretrained:
    """Load a backbone and its tokenizer.

    Args:
        source: a folder, or the name of a preset of keras_nlp.
        weights: whether to read the weights, too; else the backbone has new ones.

    Raises:
        UserError: where there is no such backbone, or it does not read plain texts.
    """
    import keras_nlp

    _check_source(str(source))
    try:
        backbone = keras_nlp.models.Backbone.from_preset(str(source), load_weights=weights)
        tokenizer = keras_nlp.tokenizers.Tokenizer.from_preset(str(source))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise UserError(
            f"model.backbone {source} cannot be loaded: {one_line(error)} {WRITTEN_BY}"
        ) from None
    _check_backbone(backbone, source)
    return Pretrained(backbone, BackboneTokenizer(tokenizer), _marks(backbone, tokenizer))


def _check_source(source: str) -> None:
    """Refuse what is neither a folder with a backbone nor the name of a preset."""
    import keras_nlp

    path = Path(source).expanduser()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise UserError(f"model.backbone {source} has no {CONFIG}. {WRITTEN_BY}")
        return
    names = keras_nlp.models.Backbone.presets
    if path.exists() or not ("://" in source or source in names):
        raise UserError(
            f"model.backbone {source} is neither a folder nor a preset of keras_nlp, like "
            f"bert_tiny_en_uncased.{did_you_mean(source, names)} {WRITTEN_BY}"
        )


def _check_backbone(backbone: keras.Model, source: Path | str) -> None:
    inputs, outputs = backbone.input, backbone.output
    names = set(inputs) if isinstance(inputs, dict) else set()
    states = outputs.get("sequence_output") if isinstance(outputs, dict) else outputs
    if not {"token_ids", "padding_mask"} <= names <= READS or len(states.shape) != 3:
        raise UserError(
            f"model.backbone {source} ({type(backbone).__name__}) is not one that reads a text as "
            f"token_ids and padding_mask. Received: one with {', '.join(sorted(names)) or 'none'}."
        )


def _marks(backbone: keras.Model, tokenizer) -> dict:
    """Return the marks of a backbone, out of the packer of its own text classifier's preprocessor.

    A backbone without one gets that of the base class: start and end of its tokenizer.
    """
    import keras_nlp

    base = keras_nlp.models.TextClassifierPreprocessor
    known = [
        each
        for each in vars(keras_nlp.models).values()
        if isinstance(each, type) and issubclass(each, base)
    ]
    own = [each for each in known if each.backbone_cls is type(backbone)]
    preprocessor = (own or [base])[0](tokenizer, sequence_length=8)
    preprocessor([""])  # which makes the packer
    packer = preprocessor.packer
    return {
        "start": list(packer.start_value or []),
        "separator": list(packer.sep_value or []),
        "end": list(packer.end_value or []),
        "padding": int(packer.pad_value or 0),
    }
