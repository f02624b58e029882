"""Pretrained backbones of KerasHub: found, checked, kept, and read from by an encoder."""

import base64
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import keras_hub
from keras import ops

from keras_attention.paths import output_path

from ...errors import UserError, did_you_mean, one_line
from ...store.weights import check_room
from ...text import PAD_ID, SPECIAL_TOKENS, Tokenizer
from ..config import ClassificationConfig
from .encoders import SIDES, TextEncoder
from .layers import PACKAGE

if TYPE_CHECKING:
    import tensorflow as tf

# Ids of a backbone's vocabulary come after the ids that batches and readers keep for themselves.
OFFSET = len(SPECIAL_TOKENS)
FOLDER = "backbone"
"""Where a run folder keeps the backbone that its training starts from."""
WRITTEN_BY = "Expected a folder that backbone.save_to_preset and tokenizer.save_to_preset wrote."
LARGEST_VOCABULARY = 1 << 28
READS = {"token_ids", "padding_mask", "segment_ids"}


class BackboneTokenizer(Tokenizer):
    """A tokenizer of `keras_hub`, as preprocessors and exported graphs use one.

    Its ids are those of the backbone's vocabulary plus 4, as the ids below are taken. Its content
    is the tokenizer's own files, in one archive.
    """

    kind = "keras_hub"
    suffix = ".zip"

    def __init__(self, tokenizer: keras_hub.tokenizers.Tokenizer):
        import tensorflow as tf

        self.tokenizer = tokenizer
        # The graph that is exported: keras_hub has another way for strings outside of one.
        text = tf.TensorSpec([None], tf.string)
        self._encode = tf.function(self.in_graph().encode, input_signature=[text], autograph=False)

    @property
    def vocabulary_size(self) -> int:
        return self.tokenizer.vocabulary_size() + OFFSET

    @property
    def unknown_id(self) -> int | None:
        """The id of words that the vocabulary lacks; None where there is none, as for bytes."""
        own = getattr(self.tokenizer, "unk_token_id", None)
        return None if own is None else int(own) + OFFSET

    @property
    def vocabulary(self) -> list[str]:
        return [*SPECIAL_TOKENS, *self.tokenizer.get_vocabulary()]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        import tensorflow as tf

        return self._encode(tf.constant(list(lines), tf.string)).to_list()

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        own = [[index - OFFSET for index in row if index >= OFFSET] for row in ids]
        return [str(self.tokenizer.detokenize(row)) if row else "" for row in own]

    def tokens(self, line: str) -> list[str]:
        return [self.tokenizer.id_to_token(index - OFFSET) for index in self.encode([line])[0]]

    def join(self, tokens: Sequence[str]) -> str:
        return self.decode([[self.tokenizer.token_to_id(token) + OFFSET for token in tokens]])[0]

    def in_graph(self) -> "tf.Module":
        import tensorflow as tf

        class InGraph(tf.Module):
            def encode(module, strings):
                ids = tf.cast(self.tokenizer(strings), tf.int32) + OFFSET
                # The tables of the tokenizer, which the first call makes: a SavedModel holds them.
                own, kind = vars(self.tokenizer).values(), tf.__internal__.tracking.Trackable
                module.tables = [each for each in own if isinstance(each, kind)]
                return ids

        return InGraph()

    def _content(self) -> bytes:
        content = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(content, "w") as archive:
            self.tokenizer.save_assets(folder)
            for path in sorted(Path(folder).iterdir()):
                entry = zipfile.ZipInfo(path.name)  # of no date: the same content each time
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        return content.getvalue()

    def _options(self) -> dict[str, Any]:
        return {"tokenizer": keras.saving.serialize_keras_object(self.tokenizer)}

    @classmethod
    def _restore(cls, content: bytes, options: Mapping[str, Any]) -> "BackboneTokenizer":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(each.file_size for each in archive.infolist()) > LARGEST_VOCABULARY:
                raise UserError(
                    f"the vocabulary of a backbone's tokenizer has at most {LARGEST_VOCABULARY:,} "
                    "bytes. Received: an archive that inflates to more."
                )
            files = {name: archive.read(name) for name in archive.namelist()}
        tokenizer = keras.saving.deserialize_keras_object(options["tokenizer"])
        # Handed over as values: Keras refuses to read other files while it reads one of its own.
        if "merges.txt" in files:
            merges = files["merges.txt"].decode().split("\n")[:-1]
            tokenizer.set_vocabulary_and_merges(json.loads(files["vocabulary.json"]), merges)
        elif "vocabulary.spm" in files:
            tokenizer.set_proto(files["vocabulary.spm"])
        else:
            tokenizer.set_vocabulary(files["vocabulary.txt"].decode().split("\n")[:-1])
        return cls(tokenizer)

    def get_config(self) -> dict[str, Any]:
        content = base64.b64encode(self._content()).decode()
        return {"kind": self.kind, "vocabulary": content, **self._options()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "BackboneTokenizer":
        return cls._restore(base64.b64decode(config["vocabulary"]), config)


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
    marks: dict[str, Any]

    def save(self, folder: Path | str) -> None:
        """Write it into `folder`, as `load_pretrained` reads it."""
        folder = output_path(folder)
        check_room(folder, self.backbone)
        self.backbone.save_to_preset(str(folder))
        self.tokenizer.tokenizer.save_to_preset(str(folder))

    def check_length(self, config: ClassificationConfig) -> None:
        """Refuse texts that are longer than what the backbone has places for."""
        texts = 2 if config.data.second_column else 1
        places = getattr(self.backbone, "max_sequence_length", None)
        marks = len(self.marks["start"]) + len(self.marks["end"])
        marks += len(self.marks["separator"]) * (texts - 1)
        if places is not None and config.data.max_length > (places - marks) // texts:
            raise UserError(
                f"model.backbone {config.model.backbone} reads {places} tokens at most, its marks "
                f"among them: data.max_length must be at most {(places - marks) // texts}"
                f"{' for each text of a pair' if texts > 1 else ''}. "
                f"Received: {config.data.max_length}."
            )


def load_pretrained(source: Path | str, weights: bool = True, dtype: Any = None) -> Pretrained:
    """Load a backbone and its tokenizer.

    Args:
        source: a folder, or the name of a preset of keras_hub.
        weights: whether to read the weights, too; else the backbone has new ones.
        dtype: the dtype policy of the backbone; None for Keras' global one.

    Returns:
        A `Pretrained`.

    Raises:
        UserError: where there is no such backbone, or it does not read plain texts.
    """
    path, names = Path(source).expanduser(), keras_hub.models.Backbone.presets
    if path.is_dir() and not (path / "config.json").is_file():
        raise UserError(f"model.backbone {source} has no config.json. {WRITTEN_BY}")
    is_handle = "://" in str(source) or str(source) in names
    if not path.is_dir() and (path.exists() or not is_handle):
        raise UserError(
            f"model.backbone {source} is neither a folder nor a preset of keras_hub, like "
            f"bert_tiny_en_uncased.{did_you_mean(str(source), names)} {WRITTEN_BY}"
        )
    given = {} if dtype is None else {"dtype": dtype}
    preset = str(path if path.is_dir() else source)
    try:
        backbone = keras_hub.models.Backbone.from_preset(preset, load_weights=weights, **given)
        tokenizer = keras_hub.tokenizers.Tokenizer.from_preset(preset)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise UserError(
            f"model.backbone {source} cannot be loaded: {one_line(error)} {WRITTEN_BY}"
        ) from None
    _check_backbone(backbone, source)
    return Pretrained(backbone, BackboneTokenizer(tokenizer), _marks(backbone, tokenizer))


def _check_backbone(backbone: keras.Model, source: Path | str) -> None:
    inputs, outputs = backbone.input, backbone.output
    names = set(inputs) if isinstance(inputs, dict) else set()
    states = outputs.get("sequence_output") if isinstance(outputs, dict) else outputs
    shape = getattr(states, "shape", ())
    if not {"token_ids", "padding_mask"} <= names <= READS or len(shape) != 3:
        raise UserError(
            f"model.backbone {source} ({type(backbone).__name__}) is not one that reads a text as "
            f"token_ids and padding_mask. Received: one with {', '.join(sorted(names)) or 'none'}."
        )


def _marks(backbone: keras.Model, tokenizer: keras_hub.tokenizers.Tokenizer) -> dict[str, Any]:
    """Return the marks of a backbone, out of the packer of its own text classifier's preprocessor.

    A backbone without one gets that of the base class: start and end of its tokenizer.
    """
    base = keras_hub.models.TextClassifierPreprocessor
    known = [each for each in vars(keras_hub.models).values() if isinstance(each, type)]
    known = [each for each in known if issubclass(each, base)]
    own = [each for each in known if each.backbone_cls is type(backbone)]
    preprocessor = (own or [base])[0](tokenizer, sequence_length=8)
    preprocessor([""])  # which makes the packer
    packer = preprocessor.packer
    marks = {"start": packer.start_value, "separator": packer.sep_value, "end": packer.end_value}
    marks = {name: list(ids or []) for name, ids in marks.items()}
    return {**marks, "padding": int(packer.pad_value or 0)}


@keras.saving.register_keras_serializable(PACKAGE)
class BackboneEncoder(TextEncoder):
    """A text, or a pair in one sequence, as a pretrained backbone reads it, pooled by attention.

    A pair becomes `start text separator second end`, a single text `start text end`. The states of
    the words alone are pooled: a backbone's own attention rests on the marks when it has nothing to
    say, and pooling would learn to rest there too.

    Args:
        backbone: a model of `keras_hub.models` from `token_ids`, `padding_mask` and, where it has
            them, `segment_ids` to a state for each token.
        pool: a `Pool`.
        start: the ids before the first text, of the backbone's vocabulary.
        separator: the ids between two texts.
        end: the ids after the last text.
        padding: the id of the padding after it.
        fine_tuned: whether the backbone is trained; else it is frozen and without dropout.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: a dictionary with `text` `(B, S)`, and for pairs `second`: ids of the vocabulary
            plus 4, 0 is padding.
        training: whether dropout applies.

    Reference:
        Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers for language
        understanding", sections 3 and 5.3 (feature-based).
    """

    described = ("backbone", "pool", "start", "separator", "end", "padding", "fine_tuned")
    text_counts = (1, 2)

    def __init__(
        self,
        backbone: keras.Model,
        pool: keras.layers.Layer,
        *,
        start: Sequence[int],
        separator: Sequence[int],
        end: Sequence[int],
        padding: int,
        fine_tuned: bool = False,
        **kwargs: Any,
    ):
        marks = list(start), list(separator), list(end), padding
        super().__init__(backbone, pool, *marks, fine_tuned, **kwargs)
        backbone.trainable = fine_tuned
        states = _states_of(backbone.output)
        used = {id(layer) for layer in keras.Model(backbone.input, states).layers}
        for layer in backbone.layers:
            if id(layer) not in used:  # like a dense one behind the first state
                layer.trainable = False

    @property
    def vocabulary_size(self) -> int | None:
        size = getattr(self.backbone, "vocabulary_size", None)
        return None if size is None else size + OFFSET

    def call(self, inputs, training=False):
        texts = [inputs[side] for side in SIDES if side in inputs]
        packed, is_word, place = self._packed(texts)
        given = {name: packed[name] for name in self.backbone.input}
        states = _states_of(self.backbone(given, training=bool(training) and self.fine_tuned))
        if not self.fine_tuned:
            states = ops.stop_gradient(states)
        vector, weights = self.pool(states, is_word)
        found = {}
        for name, text, places in zip(("words", "second"), texts, place, strict=False):
            of_text = ops.take_along_axis(weights, places, axis=1)
            found[name] = ops.where(ops.not_equal(text, PAD_ID), of_text, ops.zeros_like(of_text))
        return vector, found

    def _packed(self, texts):
        """Return what the backbone reads, which places hold words, and each text's places."""
        last = len(texts) - 1
        columns = [_mark(self.start, texts[0], 0)]
        for number, text in enumerate(texts):
            there = ops.not_equal(text, PAD_ID)
            columns.append((text - OFFSET, there, there, ops.full_like(text, number)))
            columns.append(_mark(self.end if number == last else self.separator, text, number))
        tokens, there, is_word, segments = (
            ops.concatenate(each, axis=1) for each in zip(*columns, strict=True)
        )
        # What is there goes to the front in its order, the padding of each text to the end.
        length = ops.shape(tokens)[1]
        index = ops.expand_dims(ops.arange(length), 0)
        order = ops.argsort(ops.where(there, index, index + length), axis=1)
        tokens, there_now, is_word, segments = (
            ops.take_along_axis(each, order, axis=1) for each in (tokens, there, is_word, segments)
        )
        packed = {
            "token_ids": ops.where(there_now, tokens, self.padding),
            "padding_mask": ops.cast(there_now, "int32"),
            "segment_ids": ops.where(there_now, segments, 0),
        }
        place = ops.maximum(ops.cumsum(ops.cast(there, "int32"), axis=1) - 1, 0)
        places, first = [], len(self.start)
        for text in texts:
            places.append(place[:, first : first + ops.shape(text)[1]])
            first = first + ops.shape(text)[1] + len(self.separator)
        return packed, is_word, places


def _states_of(outputs):
    """Return the states `(B, L, D)` among what a backbone gives."""
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def _mark(ids, text, segment):
    """Return columns of ids that every row has, and that are no words."""
    shape = (ops.shape(text)[0], len(ids))
    rows = ops.broadcast_to(ops.convert_to_tensor([ids], "int32"), shape)
    there = ops.ones(shape, "bool")
    return rows, there, ops.logical_not(there), ops.full_like(rows, segment)
