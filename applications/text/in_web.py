"""Tokenizers as plain values, by which the script of the page in a browser cuts the same text.

`Tokenizer.in_web` gives them, and `network.js` of the translators' web export reads them.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

_MODELS = {1: "unigram", 2: "bpe"}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3


def words_in_web(
    vocabulary: Sequence[str],
    lower: Mapping[str, str],
    split_rules: Sequence[tuple[str, str]],
    join_rules: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Describe a `WordTokenizer`; its rules are regular expressions of JavaScript too."""

    def of_javascript(rules: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[pattern, after.replace("\\1", "$1")] for pattern, after in rules]

    return {
        "kind": "words",
        "vocabulary": list(vocabulary),
        "lower": dict(lower),
        "splitRules": of_javascript(split_rules),
        "joinRules": of_javascript(join_rules),
    }


def pieces_in_web(
    model: bytes, vocabulary: Sequence[str], has_own_ids: bool, tag: str | None
) -> dict[str, Any]:
    """Describe a `SentencePieceTokenizer`.

    Args:
        model: the content of the model's file.
        vocabulary: the token of each id.
        has_own_ids: whether ids are those of the vocabulary, and not the model's own.
        tag: the form of a tag that a text may begin with, where there are any.

    Raises:
        ValueError: where the model cuts text in a way that the script does not know.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    types = {piece.type for piece in proto.pieces}
    problem = ""
    if trainer.model_type not in _MODELS:
        problem = f"a model of type {trainer.ModelType.Name(trainer.model_type).lower()}"
    elif types - {_NORMAL, _UNKNOWN, _CONTROL}:
        names = sorted(proto.SentencePiece.Type.Name(each).lower() for each in types)
        problem = f"a model with pieces of the types {', '.join(names)}"
    elif trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        problem = "a model that writes a space otherwise than as the beginning of a piece"
    if problem:
        raise ValueError(
            "The script of a page cuts text by unigram and BPE models with pieces of the types "
            f"normal, unknown and control, which begin with their space. Received: {problem}"
        )
    return {
        "kind": "pieces",
        "model": _MODELS[trainer.model_type],
        "vocabulary": list(vocabulary),
        "hasOwnIds": has_own_ids,
        "tag": tag,
        "addsSpace": normalizer.add_dummy_prefix,
        "removesSpaces": normalizer.remove_extra_whitespaces,
        "rules": base64.b64encode(normalizer.precompiled_charsmap).decode(),
        # Ids of the model, texts and scores of the pieces that text is cut into.
        "pieces": [
            [place, piece.piece, piece.score]
            for place, piece in enumerate(proto.pieces)
            if piece.type == _NORMAL
        ],
    }
