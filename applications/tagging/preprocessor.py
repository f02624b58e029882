"""From words and tags to ids, in Python and inside a TensorFlow graph."""

import collections
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ..base.backbones import OFFSET, BackbonePreprocessor
from ..base.preprocessor import is_tensor, padded
from ..data.corpus import Corpus
from ..errors import UserError, check_choice, check_range, did_you_mean, shown
from ..store.bad_lines import BadLine, Line
from ..text import PAD_ID, UNK_ID, Tokenizer, WordTokenizer, nfc
from ..text.word_tokenizer import SPACE
from . import metrics
from .data import Sentence, as_sentences, marks_of, patterns
from .networks import PACKAGE

LETTERS = 20
"""The most letters of a word that are read."""
PIECES = 16
"""The most pieces of a word that a backbone reads."""


@keras.saving.register_keras_serializable(PACKAGE)
class TaggingPreprocessor(BackbonePreprocessor):
    """Turns words into ids of words and of letters, or of their pieces, and tags into targets.

    Tags that mark spans are learnt in `scheme`; others as they are.

    Args:
        tokenizer: of words, cut at spaces; or the `BackboneTokenizer` of a pretrained backbone,
            which cuts each word into pieces.
        letters: the letters that have an id, in the order of their ids from 2.
        tags: the tags, in the order of the network's outputs.
        scheme: `"BIO"` or `"BIOES"` where the tags mark spans; None where they do not.
        roles: whether each sentence comes with the index of its predicate.
        max_length: the most words that are read at once.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: Sentences: lists of words, or texts; with roles pairs of these and an index.
        y: Lists of tags.
        sample_weight: Weights `(B,)`.

    Returns:
        `({"words": (B, T), "letters": (B, T, L)}, targets (B, T))`, and the weights where given;
        without `y` the inputs alone. Of a backbone's tokenizer the inputs are `pieces` `(B, S)`,
        ids of the pieces of all words, and `words` `(B, T)`, the index of the first piece of each,
        from 1. With roles the inputs have `marks` `(B, T)`.

    Raises:
        ValueError: where words and tags do not go together, or a tag is unknown.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        letters: str,
        tags: Sequence[str],
        scheme: str | None = None,
        roles: bool = False,
        max_length: int = 256,
        **kwargs: Any,
    ):
        super().__init__({"tokenizer": tokenizer}, **kwargs)
        check_choice("`scheme`", scheme, (None, "BIO", "BIOES"))
        check_range("`max_length`", max_length, at_least=2)
        tags = list(tags)
        if not tags or len(set(tags)) < len(tags):
            raise ValueError(f"`tags` should be tags, each once. Received: tags={shown(tags)}")
        self.keep(letters=letters, tags=tags, scheme=scheme, roles=roles, max_length=max_length)
        self._letter_ids = {letter: 2 + place for place, letter in enumerate(letters)}
        self._tag_ids = {tag: place for place, tag in enumerate(tags)}

    @classmethod
    def adapt(
        cls,
        corpus: Corpus,
        *,
        vocabulary_size: int = 30000,
        min_count: int = 1,
        lowercase: bool = True,
        scheme: str = "own",
        tokenizer: Tokenizer | None = None,
        **options: Any,
    ) -> "TaggingPreprocessor":
        """Return a preprocessor whose words, letters and tags are those of a corpus.

        With a `tokenizer`, that of a backbone, only the tags are.
        """
        known = ""
        if tokenizer is None:
            lines = [" ".join(each.words) for each in corpus["sentence"]]
            sizes = vocabulary_size, min_count, lowercase
            tokenizer = WordTokenizer.train(lines, *sizes, "whitespace")
            letters = collections.Counter(letter for line in lines for letter in nfc(line))
            known = "".join(sorted(letter for letter in letters if letter != " "))
        found = {tag for each in corpus["sentence"] for tag in each.tags}
        own = None
        if metrics.are_of_spans(found):
            own = metrics.scheme_of(found) if scheme == "own" else scheme
            found = metrics.names_of(metrics.kinds_of(found), own)
        elif scheme != "own":
            raise UserError(
                f"data.scheme {scheme} needs tags of spans, such as B-PER, I-PER and O. "
                f"Received: {', '.join(sorted(found)[:5])}."
            )
        tags = found if own else sorted(found)
        return cls(tokenizer, known, tags, own, **options)

    @property
    def letter_kinds(self) -> list[int]:
        """What each letter is, by its id: 0 other, 1 small, 2 capital, 3 digit."""
        kinds = {"Ll": 1, "Lu": 2, "Lt": 2, "Nd": 3}
        return [0, 0, *(kinds.get(unicodedata.category(letter), 0) for letter in self.letters)]

    @property
    def ranks(self) -> dict[str, int]:
        """How many axes each input of the network has."""
        own = {"pieces": 2} if self.reads_backbone else {"letters": 3}
        return {"words": 2, **own} | ({"marks": 2} if self.roles else {})

    def entries(self):
        return {"vocabulary_size": self.tokenizer.vocabulary, "outputs": list(self.tags)}

    def call(self, x, y=None, sample_weight=None):
        if is_tensor(x):
            inputs = self._read_in_graph(x)[0]
            if y is None:
                return inputs
            targets = self._targets_in_graph(y)
            return keras.utils.pack_x_y_sample_weight(inputs, targets, sample_weight)
        sentences = as_sentences(x, y, self.roles)
        inputs = self.inputs(sentences)
        if y is None:
            return inputs
        targets = padded([self.targets(each) for each in sentences])
        return keras.utils.pack_x_y_sample_weight(inputs, targets, sample_weight)

    def inputs(self, sentences: Sequence[Sentence]) -> dict[str, np.ndarray]:
        """Return the inputs of the network for sentences."""
        rows, forms = self.forms(sentences)
        if self.reads_backbone:
            words, pieces = self.pieces(rows, forms)
            found = {"words": padded(words), "pieces": padded(pieces)}
        else:
            tables = self.tables(forms)
            found = {name: table[padded(rows)] for name, table in tables.items()}
        if self.roles:
            found["marks"] = padded([marks_of(each) for each in sentences])
        return found

    def forms(self, sentences: Sequence[Sentence]) -> tuple[list[list[int]], list[str]]:
        """Return the number of each word's form, from 1, and the forms in the order of these."""
        numbers: dict[str, int] = {}
        rows = [
            [numbers.setdefault(word, 1 + len(numbers)) for word in each.words]
            for each in sentences
        ]
        return rows, list(numbers)

    def tables(self, forms: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the ids of words `(F,)` and of letters `(F, L)` by the number of the form."""
        ids = self.tokenizer.encode(forms)
        words = np.array([PAD_ID, *(each[0] if len(each) == 1 else UNK_ID for each in ids)])
        letters = padded([[], *map(self._letters_of, forms)])
        return {"words": words.astype("int32"), "letters": letters}

    def pieces(
        self, rows: Sequence[Sequence[int]], forms: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the index of the first piece of each word, from 1, and the ids of all pieces.

        Args:
            rows: the numbers of the forms of each sentence.
            forms: the forms.
        """
        # As inside of a text: some tokenizers have other pieces where no space comes first.
        ids = self.tokenizer.encode([f" {form}" for form in forms]) if forms else []
        cut = [each[:PIECES] or [self._no_piece] for each in ids]
        pieces = [[piece for form in row for piece in cut[form - 1]] for row in rows]
        counts = [[len(cut[form - 1]) for form in row] for row in rows]
        first = [(1 + np.cumsum([0, *row[:-1]])).tolist() if row else [] for row in counts]
        return first, pieces

    def unknown(self, inputs: Mapping[str, Any]) -> np.ndarray:
        """Return which words of `inputs` the vocabulary lacks, `(B, T)`, or a piece of them."""
        words = np.asarray(inputs["words"])
        if not self.reads_backbone:
            return words == UNK_ID
        pieces, ends = np.asarray(inputs["pieces"]), np.roll(words, -1, axis=1) - 1
        ends[:, -1] = -1
        ends = np.where(ends < 0, (pieces != 0).sum(axis=1, keepdims=True), ends)
        counts = np.cumsum(np.pad(pieces == self.tokenizer.unknown_id, ((0, 0), (1, 0))), axis=1)
        before = np.take_along_axis(counts, np.maximum(words - 1, 0), axis=1)
        return (words > 0) & (np.take_along_axis(counts, ends, axis=1) > before)

    @property
    def _no_piece(self) -> int:
        """The id of a word without pieces, such as one of marks that a tokenizer drops."""
        unknown = self.tokenizer.unknown_id
        return OFFSET if unknown is None else unknown

    def _letters_of(self, word: str) -> list[int]:
        return [self._letter_ids.get(letter, UNK_ID) for letter in nfc(word)[:LETTERS]]

    def targets(self, sentence: Sentence) -> list[int]:
        """Return the ids of the tags of a sentence; a ValueError where one is unknown."""
        tags = list(sentence.tags)
        for place, tag in enumerate(tags):
            if not self._knows(tag):
                self._refuse(tag, sentence.place(place))
        if self.scheme is not None:
            tags = metrics.tags_of(metrics.spans_of(tags), len(tags), self.scheme)
        return [self._tag_ids[tag] for tag in tags]

    def _knows(self, tag: str) -> bool:
        if self.scheme is None or tag == metrics.OUTSIDE:
            return tag in self._tag_ids
        prefix, kind = metrics.split(tag)
        return prefix in metrics.PREFIXES and metrics.joined("B", kind) in self._tag_ids

    def _refuse(self, tag: str, place: Line | str) -> None:
        known = sorted({each.partition("-")[2] or each for each in self.tags})
        problem = f"the training data have no tag '{tag}'.{did_you_mean(tag, self.tags)} "
        problem += f"Known: {', '.join(known[:20] if self.scheme else self.tags[:20])}"
        if isinstance(place, Line):
            raise BadLine(place, problem)
        raise ValueError(f"{place}: {problem}. Received: {tag!r}")

    # Inside of a graph.

    def words_in_graph(self, strings: Any) -> tuple[Any, Any, Any]:
        """Return the words of texts, ragged, and their first and last characters, as `cut` does."""
        import tensorflow as tf
        import tensorflow_text

        word, mark = patterns()
        keep = f"{word}|{mark}"
        split = tensorflow_text.regex_split_with_offsets
        words, start, end = split(strings, f"{keep}|{SPACE}+", keep)
        rows = tf.gather(strings, words.value_rowids())

        def letters(places: Any) -> Any:
            before = tf.strings.substr(rows, tf.zeros_like(places.values), places.values)
            return places.with_values(tf.strings.length(before, unit="UTF8_CHAR"))

        return words, letters(start), letters(end)

    def _read_in_graph(self, strings: Any) -> tuple[dict[str, Any], Any, Any, Any]:
        """Return the inputs of texts, or of words padded with "", and words and offsets."""
        import tensorflow as tf

        start = end = None
        if isinstance(strings, tf.RaggedTensor):
            words = strings
        elif strings.shape.rank == 1:
            words, start, end = self.words_in_graph(strings)
        else:
            words = tf.RaggedTensor.from_tensor(strings, padding="")
        if self.reads_backbone:
            return self._pieces_in_graph(words), words, start, end
        ids = self.in_graph("tokenizer").encode(words.values)
        one = tf.fill([ids.nrows(), 1], UNK_ID)
        ids = tf.where(ids.row_lengths() == 1, tf.concat([ids, one], axis=1)[:, :1].values, UNK_ID)
        flat = _letters_in_graph(words.values, self.letters)
        shape = [words.nrows(), tf.maximum(tf.cast(words.bounding_shape()[1], tf.int32), 1)]

        def dense(values: Any) -> Any:
            rest = values.shape[1:]
            return words.with_values(values).to_tensor(0, shape=[None, None, *rest])

        found = {"words": dense(tf.cast(ids, tf.int32)), "letters": dense(flat)}
        short = shape[1] - tf.shape(found["words"])[1]
        found["words"] = tf.pad(found["words"], [[0, 0], [0, short]])
        found["letters"] = tf.pad(found["letters"], [[0, 0], [0, short], [0, 0]])
        return found, words, start, end

    def _pieces_in_graph(self, words: Any) -> dict[str, Any]:
        """Return the indices of first pieces and the ids of pieces of ragged words."""
        import tensorflow as tf

        ids = self.in_graph("tokenizer").encode(tf.strings.join([" ", words.values]))[:, :PIECES]
        none = tf.cast(ids.row_lengths() == 0, tf.int64)
        filled = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(none)], self._no_piece), none
        )
        ids = tf.concat([ids, filled], axis=1)
        ends = tf.cumsum(ids.row_lengths())
        before = tf.concat([[0], ends], axis=0)
        start = tf.gather(tf.gather(before, words.row_starts()), words.value_rowids())
        first = words.with_values(tf.cast(1 + before[:-1] - start, tf.int32))
        pieces = words.with_values(ids).merge_dims(1, 2)

        def dense(ragged: Any) -> Any:
            found = ragged.to_tensor(PAD_ID)
            return tf.pad(found, [[0, 0], [0, tf.maximum(1 - tf.shape(found)[1], 0)]])

        return {"words": dense(first), "pieces": dense(pieces)}

    def _targets_in_graph(self, tags: Any) -> Any:
        """Return the target ids of tags in the network's scheme, ragged or padded with ""."""
        import tensorflow as tf

        tags = tags.to_tensor("") if isinstance(tags, tf.RaggedTensor) else tags
        names = tf.constant(self.tags)
        is_name = tags[:, :, None] == names
        known = tf.reduce_all(tf.reduce_any(is_name, axis=2) | (tags == ""))
        check = tf.debugging.Assert(known, ["a tag is not among", names, tags])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.cast(tf.argmax(tf.cast(is_name, tf.int32), axis=2), tf.int32)


def _letters_in_graph(words: Any, letters: str) -> Any:
    """Return the ids of the letters of words `(N,)`, int32 `(N, LETTERS)`."""
    import tensorflow as tf
    import tensorflow_text

    codes = np.array(sorted(map(ord, letters)) or [0], "int32")
    ids = np.array([2 + letters.index(chr(code)) if letters else UNK_ID for code in codes], "int32")
    words = tensorflow_text.normalize_utf8(words, "NFC")
    found = tf.strings.unicode_decode(words, "UTF-8")[:, :LETTERS]
    place = tf.minimum(tf.searchsorted(codes, found.values), len(codes) - 1)
    same = tf.gather(codes, place) == found.values
    values = tf.where(same, tf.gather(ids, place), UNK_ID)
    return found.with_values(values).to_tensor(PAD_ID, shape=[None, LETTERS])
