"""Pretrained backbones of KerasHub: found, checked, kept, and read from by a network."""

import base64
import functools
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

from ..errors import UserError, did_you_mean, one_line
from ..store.weights import check_room
from ..text import PAD_ID, SPECIAL_TOKENS, Tokenizer
from .network import Part
from .preprocessor import TextPreprocessor

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
        text = tf.TensorSpec([None], tf.string)
        self._encode = tf.function(self.in_graph().encode, input_signature=[text], autograph=False)

    @property
    def vocabulary_size(self) -> int:
        return self.tokenizer.vocabulary_size() + OFFSET

    @functools.cached_property
    def unknown_id(self) -> int | None:
        """The id of words that the vocabulary lacks; None where there is none, as for bytes."""
        names = [getattr(self.tokenizer, name, None) for name in ("oov_token", "unk_token")]
        vocabulary = self.tokenizer.get_vocabulary()
        known = [name for name in (*names, "<unk>") if name in vocabulary]
        return int(self.tokenizer.token_to_id(known[0])) + OFFSET if known else None

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
                ids = self.tokenizer(strings)
                if not tf.is_tensor(ids):  # eager ones come as lists
                    ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
                ids = tf.cast(ids, tf.int32) + OFFSET
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


class BackbonePreprocessor(TextPreprocessor):
    """Base of the preprocessors whose tokenizer may be that of a backbone."""

    backbone_folder: Path | None = None
    """The run folder's own copy of the backbone, which training starts from, if it has one."""

    @property
    def reads_backbone(self) -> bool:
        """Whether the ids are those of a backbone's vocabulary."""
        return isinstance(self.tokenizer, BackboneTokenizer)

    def read_start(self, folder: Path) -> None:
        if (folder / FOLDER).is_dir():
            self.backbone_folder = folder / FOLDER
        super().read_start(folder)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "BackbonePreprocessor":
        tokenizer = config["tokenizer"]
        if tokenizer["kind"] != BackboneTokenizer.kind:
            return super().from_config(config)
        return cls(**{**config, "tokenizer": BackboneTokenizer.from_config(tokenizer)})


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

    def reader(self, fine_tuned: bool | None, dtype: Any = None) -> "BackboneReader":
        """Return the layer that reads texts with it."""
        marks = {**self.marks, "fine_tuned": fine_tuned}
        return BackboneReader(self.backbone, **marks, name="reader", dtype=dtype)

    def check_length(self, wanted: int, name: str, texts: int = 1) -> None:
        """Refuse texts of a longest length that the backbone `name` has no positions for.

        Args:
            wanted: the longest length, in tokens.
            name: the name or folder of the backbone, for the message.
            texts: how many texts are in one sequence.
        """
        longest = _longest(self.backbone, texts=texts, **self.marks)
        if longest is not None and wanted > longest:
            raise UserError(
                f"model.backbone {name} reads {self.backbone.max_sequence_length} tokens at most, "
                f"its marks among them: data.max_length must be at most {longest}"
                f"{' for each text of a pair' if texts > 1 else ''}. Received: {wanted}."
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


@keras.saving.register_keras_serializable("keras_attention.common")
class BackboneReader(Part):
    """The states of the tokens of a text, or of a pair in one sequence, in a pretrained backbone.

    A pair becomes `start text separator second end`, a single text `start text end`. Padding lies
    at the end of the sequence, whatever the lengths of the texts.

    Args:
        backbone: a model of `keras_hub.models` from `token_ids`, `padding_mask` and, where it has
            them, `segment_ids` to a state for each token.
        start: the ids before the first text, of the backbone's vocabulary.
        separator: the ids between two texts.
        end: the ids after the last text.
        padding: the id of the padding after it.
        fine_tuned: whether the backbone is trained; else it is frozen and without dropout.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        texts: a list of one or two texts `(B, S)`: ids of the vocabulary plus 4, 0 is padding.
        training: whether dropout applies.

    Returns:
        The states of the sequence `(B, L, D)`, which of them are of words `(B, L)`, and for each
        text the indices of its tokens in the sequence, `(B, S)`.
    """

    def __init__(
        self,
        backbone: keras.Model,
        *,
        start: Sequence[int],
        separator: Sequence[int],
        end: Sequence[int],
        padding: int,
        fine_tuned: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(backbone=backbone, start=list(start), separator=list(separator), end=list(end))
        self.keep(padding=padding, fine_tuned=fine_tuned)
        backbone.trainable = fine_tuned
        states = _states_of(backbone.output)
        used = {id(layer) for layer in keras.Model(backbone.input, states).layers}
        for layer in backbone.layers:
            if id(layer) not in used:  # like a dense one behind the first state
                layer.trainable = False

    @property
    def vocabulary_size(self) -> int | None:
        """How many ids there are, padding included; None where the backbone does not say."""
        size = getattr(self.backbone, "vocabulary_size", None)
        return None if size is None else size + OFFSET

    @property
    def longest(self) -> int | None:
        """How many tokens a single text may have; None where the backbone has no limit."""
        return _longest(self.backbone, self.start, self.separator, self.end)

    def settings(self) -> dict[str, Any]:
        """Return the keys of a configuration that say which backbone it is, and how it is used."""
        return {"model.backbone": self.backbone.name, "model.fine_tune": self.fine_tuned}

    def call(self, texts, training=False):
        packed, is_word, positions = self.packed(texts)
        given = {name: packed[name] for name in self.backbone.input}
        states = _states_of(self.backbone(given, training=bool(training) and self.fine_tuned))
        return states if self.fine_tuned else ops.stop_gradient(states), is_word, positions

    def packed(self, texts):
        """Return what the backbone reads, which indices hold words, and those of each text."""
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
        index = ops.maximum(ops.cumsum(ops.cast(there, "int32"), axis=1) - 1, 0)
        positions, first = [], len(self.start)
        for text in texts:
            positions.append(index[:, first : first + ops.shape(text)[1]])
            first = first + ops.shape(text)[1] + len(self.separator)
        return packed, is_word, positions


def write_backbone(folder: Path, reader: BackboneReader, tokenizer: Tokenizer) -> None:
    """Copy the backbone into a run folder, whose training starts from the copy."""
    if isinstance(tokenizer, BackboneTokenizer):
        Pretrained(reader.backbone, tokenizer, {}).save(folder / FOLDER)


def _longest(
    backbone: keras.Model,
    start: Sequence[int],
    separator: Sequence[int],
    end: Sequence[int],
    padding: int = 0,
    texts: int = 1,
) -> int | None:
    positions = getattr(backbone, "max_sequence_length", None)
    marks = len(start) + len(separator) * (texts - 1) + len(end)
    return None if positions is None else (positions - marks) // texts


def _states_of(outputs):
    """Return the states `(B, L, D)` among what a backbone gives."""
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def _mark(ids, text, segment):
    """Return columns of ids that every row has, and that are no words."""
    shape = (ops.shape(text)[0], len(ids))
    rows = ops.broadcast_to(ops.convert_to_tensor([ids], "int32"), shape)
    there = ops.ones(shape, "bool")
    return rows, there, ops.logical_not(there), ops.full_like(rows, segment)
