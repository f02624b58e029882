"""What every tokenizer promises, for each kind; and what each alone does."""

import json
import os
import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from data_folder import data_folder
from keras_attention.applications.text import (
    END_ID,
    PAD_ID,
    START_ID,
    UNK_ID,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)
from keras_attention.applications.text import word_tokenizer as words
from tests.applications.text.random_text import SENTENCES, foreign_model, random_lines


def of_own_pieces(lowercase: bool) -> SentencePieceTokenizer:
    """Return the tokenizer of a model with pieces of its own, foreign ones and a tag among them."""
    known = SentencePieceTokenizer.train(SENTENCES, 75, lowercase=lowercase).vocabulary[4:]
    return SentencePieceTokenizer(foreign_model(lowercase), ["▁far", ">>fra<<", *known[::-1], "中"])


MAKERS = {
    "own pieces": of_own_pieces,
    "unigram": lambda low: SentencePieceTokenizer.train(SENTENCES, 75, lowercase=low),
    "bpe": lambda low: SentencePieceTokenizer.train(SENTENCES, 90, model_type="bpe", lowercase=low),
    "words": lambda low: WordTokenizer.train(SENTENCES, 40, lowercase=low),
    "split words": lambda low: WordTokenizer.train(
        SENTENCES, 40, lowercase=low, split="whitespace"
    ),
}


@pytest.fixture(scope="module", params=[(k, low) for k in MAKERS for low in (False, True)], ids=str)
def tokenizer(request) -> Tokenizer:
    name, lowercase = request.param
    return MAKERS[name](lowercase)


def test_planes_that_are_not_looked_through_have_no_letters():
    for character in map(chr, set(range(sys.maxunicode + 1)) - set(words._assigned())):
        assert unicodedata.category(character) in ("Cn", "Co", "Cs")
        assert character.lower() == character


def test_special_ids(tokenizer):
    assert (PAD_ID, UNK_ID, START_ID, END_ID) == (0, 1, 2, 3)
    assert tokenizer.vocabulary[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(tokenizer.vocabulary) == tokenizer.vocabulary_size


def test_typed_special_pieces_are_text(tokenizer):
    ids = tokenizer.encode(["<s> </s> <pad> a<s>b", "<s></s>", "</s>", "<unk>"])
    assert all(row and not {PAD_ID, START_ID, END_ID} & set(row) for row in ids)


def test_trained_on_special_pieces():
    lines = ["x <s> y </s> <pad> <unk> z"] * 30
    for tokenizer in (
        WordTokenizer.train(lines, 20, split="whitespace"),
        SentencePieceTokenizer.train(lines, 8),
    ):
        ids = tokenizer.encode(lines[:1])[0]
        assert not {PAD_ID, START_ID, END_ID} & set(ids)
    words = WordTokenizer.train(lines, 20, split="whitespace")
    assert words.decode(words.encode(lines[:1])) == lines[:1]


def test_tokens_stand_for_ids(tokenizer):
    for line in random_lines(200, seed=1):
        tokens = tokenizer.tokens(line)
        ids = tokenizer.encode([line])[0]
        assert len(tokens) == len(ids)
        vocabulary = tokenizer.vocabulary
        assert all(vocabulary[i] == t for i, t in zip(ids, tokens, strict=True) if i != UNK_ID)


def test_decode_stops_at_the_end_and_leaves_out_padding_and_start(tokenizer):
    first, second = tokenizer.encode(SENTENCES[:2])
    rows = [[START_ID, *first, END_ID, *second], [PAD_ID, PAD_ID], [END_ID, *first], []]
    assert tokenizer.decode(rows) == [tokenizer.decode([first])[0], "", "", ""]
    assert tokenizer.decode(np.array([first])) == tokenizer.decode([first])


def test_decode_refuses_ids_outside_the_vocabulary(tokenizer):
    size = tokenizer.vocabulary_size
    with pytest.raises(ValueError, match=f"below the vocabulary's size {size}. Received: {size}"):
        tokenizer.decode([[5], [size]])
    with pytest.raises(ValueError, match="at least 0 and below .* size .*. Received: -1"):
        tokenizer.decode([[5, -1]])


def test_one_string_is_no_list(tokenizer):
    with pytest.raises(ValueError, match="wants a list of lines. Received: one str"):
        tokenizer.encode("a line")


def test_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "new", "source")
    loaded = load_tokenizer(tmp_path / "new", "source")
    lines = random_lines(100, seed=2)
    assert type(loaded) is type(tokenizer)
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.encode(lines) == tokenizer.encode(lines)
    assert [loaded.tokens(line) for line in lines] == [tokenizer.tokens(line) for line in lines]
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == sorted(["source.json", f"source{tokenizer.suffix}"])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("lowercase", [False, True])
def test_known_text_comes_back(name, lowercase):
    tokenizer = MAKERS[name](lowercase)
    if isinstance(tokenizer, WordTokenizer):
        words = [token for line in SENTENCES for token in tokenizer.tokens(line)]
        tokenizer = WordTokenizer(list(dict.fromkeys(words)), lowercase, tokenizer.split)
    expected = [line.lower() if lowercase else line for line in SENTENCES]
    assert tokenizer.decode(tokenizer.encode(SENTENCES)) == expected


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: (f / "t.json").unlink(), "Cannot read the tokenizer's file .*t.json"),
        (lambda f: (f / "t.txt").unlink(), "Cannot read the tokenizer's file .*t.txt"),
        (lambda f: (f / "t.txt").write_text("<pad>\n"), "its checksum differs"),
        (lambda f: (f / "t.json").write_text('{"kind'), "damaged, expected a JSON object"),
        (lambda f: (f / "t.json").write_text("[]"), "expected a JSON object. Received: \\[\\]"),
        (lambda f: change(f, kind="other"), "Received: 'other'"),
        (lambda f: change(f, format=2), "Received: format 2; a newer"),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage, message):
    WordTokenizer(["a", "b"]).save(tmp_path, "t")
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path, "t")


def change(folder, **entries):
    path = folder / "t.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


# SentencePiece alone


@pytest.mark.parametrize("name", ["t.txt", "t.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_what_is_no_vocabulary_is_refused_at_once(tmp_path, name, kind):
    WordTokenizer(["a"]).save(tmp_path, "t")
    path = tmp_path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(
        ValueError, match=f"{name}: (it is no regular file|expected at most 268,43)"
    ):
        load_tokenizer(tmp_path, "t")


@pytest.mark.parametrize("change", [("lowercase", None), ("split", "x"), ("format", [])])
def test_altered_options_are_refused(tmp_path, change):
    WordTokenizer(["a"]).save(tmp_path, "t")
    name, value = change
    options = json.loads((tmp_path / "t.json").read_text()) | {name: value}
    (tmp_path / "t.json").write_text(
        json.dumps({k: v for k, v in options.items() if v is not None})
    )
    with pytest.raises(ValueError, match="damaged|`split` must be|of format 1"):
        load_tokenizer(tmp_path, "t")


def test_json_that_nests_without_end_is_refused(tmp_path):
    (tmp_path / "t.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="t.json: damaged"):
        load_tokenizer(tmp_path, "t")


@pytest.mark.parametrize("long", ["abccba" * 33_000, "abc cb gab " * 18_000], ids=["word", "line"])
def test_lines_without_end_are_learnt_from_in_parts(long, monkeypatch):
    """Whole, 200,000 letters take half a minute, and more of them minutes."""
    lines, longest = ["abc gab"] * 50, []
    train = sentencepiece.SentencePieceTrainer.train

    def watched(sentence_iterator, **options):
        read = list(sentence_iterator)
        longest.append(max(map(len, read)))
        train(sentence_iterator=iter(read), **options)

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", watched)
    tokenizer = SentencePieceTokenizer.train([*lines, long], 11)
    assert longest[0] <= 2001
    if " " not in long:
        parts = [long[first : first + 1000] for first in range(0, len(long), 1000)]
        again = SentencePieceTokenizer.train([*lines, *parts], 11)
        assert again.vocabulary == tokenizer.vocabulary
    assert tokenizer.decode(tokenizer.encode([long])) == [long.strip()]


@pytest.mark.parametrize("lines", [[], ["", " "], iter(())])
def test_training_without_text_is_refused(lines):
    with pytest.raises(ValueError, match="needs text. Received: no line"):
        SentencePieceTokenizer.train(lines, 20)


@pytest.mark.parametrize("lines", [["a b", None], [None], ["a b"] * 9 + [b"a"]])
def test_an_error_of_the_lines_is_not_their_end(lines):
    with pytest.raises((AttributeError, TypeError)):
        SentencePieceTokenizer.train(lines, 20)


def test_training_is_deterministic():
    models = [SentencePieceTokenizer.train(SENTENCES, 70)._content() for _ in range(2)]
    assert models[0] == models[1]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_vocabulary_size(model_type):
    exact = SentencePieceTokenizer.train(SENTENCES, 75, model_type=model_type)
    assert exact.vocabulary_size == 75
    with pytest.warns(UserWarning, match=r"too small for 5000 pieces; the vocabulary has all \d+"):
        small = SentencePieceTokenizer.train(SENTENCES, 5000, model_type=model_type)
    assert small.vocabulary_size < 5000
    with pytest.raises(ValueError, match="must hold .* (\\d+) in all. Received: 20") as error:
        SentencePieceTokenizer.train(SENTENCES, 20, model_type=model_type)
    needed = int(str(error.value).split(" in all")[0].split()[-1])
    least = SentencePieceTokenizer.train(SENTENCES, needed, model_type=model_type)
    assert least.vocabulary_size == needed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([], 50), "no line that is not blank"),
        (([" ", "▁"], 50), "no line that is not blank"),
        ((SENTENCES, 3), "Received: 3"),
        ((SENTENCES, 70, "char"), "must be one of .*Received: 'char'"),
        (("a line", 70), "wants a list of lines"),
    ],
)
def test_training_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer.train(*arguments)


def test_long_lines_are_learnt_from():
    line = "abc " * 3000
    assert "▁abc" in SentencePieceTokenizer.train([line, "xyz"], 12).vocabulary


def test_digits_are_single_pieces():
    lines = ["im Jahr 1984"] * 20
    tokenizer = SentencePieceTokenizer.train(lines, 15)
    assert tokenizer.tokens("1984")[-4:] == ["1", "9", "8", "4"]


def test_foreign_models_are_refused():
    proto = sentencepiece_model_pb2.ModelProto.FromString(
        SentencePieceTokenizer.train(SENTENCES, 70)._content()
    )
    proto.pieces[0].piece, proto.pieces[1].piece = "<unk>", "<pad>"
    proto.pieces[0].type, proto.pieces[1].type = 2, 3
    proto.trainer_spec.unk_id, proto.trainer_spec.pad_id = 0, 1
    with pytest.raises(ValueError, match="Received: 1, 0, 2, 3; train it with .* or give `pieces`"):
        SentencePieceTokenizer(proto.SerializeToString())
    for content in (b"no model", b""):
        with pytest.raises(ValueError, match="Expected a SentencePiece model"):
            SentencePieceTokenizer(content)


def test_pieces_have_the_ids_of_their_positions():
    """Unknown to the model or not; what is cut off and has no position is unknown."""
    model = foreign_model()
    cut = sentencepiece.SentencePieceProcessor(model_proto=model).encode(
        "the cat sat", out_type=str
    )
    pieces = ["zz", *sorted(set(cut))[1:], "中"]
    tokenizer = SentencePieceTokenizer(model, pieces)
    wanted = [4 + pieces.index(each) if each in pieces else UNK_ID for each in cut]
    assert tokenizer.encode(["the cat sat"]) == [wanted] and UNK_ID in wanted
    assert tokenizer.tokens("the cat sat") == cut
    assert tokenizer.encode(["中"])[0][-1] == tokenizer.vocabulary_size - 1  # as text writes it
    assert tokenizer.vocabulary[4:] == pieces
    drawn = tokenizer.sample(["the cat sat"] * 7, alpha=0.2, seed=1)
    assert {each for row in drawn for each in row} <= {UNK_ID, *range(4, 4 + len(pieces))}
    assert tokenizer.encode(["the cat"] * 100) == [tokenizer.encode(["the cat"])[0]] * 100


def test_pieces_that_the_model_does_not_know_are_decoded():
    tokenizer = of_own_pieces(False)
    ids = [tokenizer.vocabulary.index(each) for each in ("▁far", "▁far", "中")]
    assert tokenizer.decode([ids, ids[:1], []]) == ["far far中", "far", ""]


def test_a_text_may_begin_with_a_tag():
    tokenizer = of_own_pieces(False)
    plain, tag = tokenizer.encode(["the cat"])[0], tokenizer.vocabulary.index(">>fra<<")
    lines = [">>fra<< the cat", ">>fra<<the cat", ">>deu<< the cat", "the >>fra<<"]
    found = tokenizer.encode(lines)
    assert found[:3] == [[tag, *plain], [tag, *plain], [UNK_ID, *plain]] and tag not in found[3]
    assert tokenizer.tokens(lines[0])[0] == ">>fra<<"
    assert [row[0] for row in tokenizer.sample(lines[:3], 0.5, 3)] == [tag, tag, UNK_ID]
    without = SentencePieceTokenizer(foreign_model(), tokenizer.vocabulary[6:])
    assert len(without.encode(lines)[0]) > len(found[0])  # text like any other


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["a", "b", "a"], "must be different ones. Received: 'a' twice"),
        (["a", ""], r"not empty. Received: pieces\[1\]=''"),
        (["a", None], r"Received: pieces\[1\]='None'"),
        ("abc", "must be a list of strings"),
        ({"a": 4}, "must be a list of strings"),
    ],
)
def test_pieces_are_checked(pieces, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer(foreign_model(), pieces)


def test_scores_add_up_exactly():
    proto = sentencepiece_model_pb2.ModelProto.FromString(
        SentencePieceTokenizer.train(SENTENCES, 70)._content()
    )
    scores = np.array([piece.score for piece in proto.pieces])
    assert np.all(scores * 1024 == np.round(scores * 1024))
    assert len(set(scores)) > 20


# Words alone


def test_words_by_frequency_then_alphabet():
    lines = ["b a c", "c b", "d c"]
    assert WordTokenizer.train(lines, 100).vocabulary[4:] == ["c", "b", "a", "d"]
    assert WordTokenizer.train(lines, 6).vocabulary[4:] == ["c", "b"]
    assert WordTokenizer.train(lines, 100, min_count=2).vocabulary[4:] == ["c", "b"]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("Yes, no.", ["Yes", "￭,", "no", "￭."]),
        ("(a) \"b\" 'c'", ["(￭", "a", "￭)", '"￭', "b", '￭"', "'￭", "c", "￭'"]),
        ("don't 3.5 -- x-y", ["don", "￭'￭", "t", "3", "￭.￭", "5", "-", "￭-", "x", "￭-￭", "y"]),
        ("what?!", ["what", "￭?", "￭!"]),
        ("a\uffedb", ["a", "￭■￭", "b"]),
        ("नमस्ते, می‌خواهم", ["नमस्ते", "￭,", "می‌خواهم"]),
        ("  a\t\u2028b\x01 ", ["a", "b"]),
        (" ", []),
    ],
)
def test_unicode_split(line, expected):
    tokenizer = WordTokenizer(list(dict.fromkeys(expected)) or ["a"])
    assert tokenizer.tokens(line) == expected
    kept = line.replace("\uffed", "■").replace("\x01", " ")
    assert tokenizer.decode(tokenizer.encode([line])) == [" ".join(kept.split())]


def test_splitting_loses_nothing_but_spaces():
    for line in random_lines(500, seed=3):
        tokenizer = WordTokenizer([])
        text = tokenizer.join(tokenizer.tokens(line))
        seen = line.replace("\uffed", "■")
        spaces = {c: " " for c in range(0xA1) if c <= 0x20 or c >= 0x7F}
        kept = unicodedata.normalize("NFC", seen.translate(spaces))
        assert text == " ".join(kept.split())


def test_whitespace_split_leaves_tokens_alone():
    tokenizer = WordTokenizer.train(["don 't ( stop ) </s>"], 100, split="whitespace")
    assert tokenizer.tokens("don 't  ( </s>") == ["don", "'t", "(", "</s>"]
    assert tokenizer.decode(tokenizer.encode(["don 't ( stop )"])) == ["don 't ( stop )"]


def test_lower_case_character_by_character():
    tokenizer = WordTokenizer([], lowercase=True)
    assert tokenizer.tokens("İ STRAẞE ΟΔΟΣ É") == ["i̇", "straße", "οδοσ", "é"]


def test_the_vocabulary_is_a_readable_file(tmp_path):
    WordTokenizer.train(["b a, b"], 100).save(tmp_path, "words")
    lines = (tmp_path / "words.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["<pad>", "<unk>", "<s>", "</s>", "b", "a", "￭,"]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WordTokenizer(["a", "b", "a"]), "Received twice: 'a'"),
        (lambda: WordTokenizer(["a", "b c"]), "without spaces. Received: 'b c'"),
        (lambda: WordTokenizer(["a", ""]), "non-empty and without spaces. Received: ''"),
        (lambda: WordTokenizer(["a"], split="moses"), "must be one of .*Received: 'moses'"),
        (lambda: WordTokenizer.train(["a"], 4), "must be above 4.*Received: 4"),
        (lambda: WordTokenizer.train(["a b"], 9, min_count=2), "Received: 2 different words"),
        (lambda: WordTokenizer.train([], 9), "Received: 0 different words"),
    ],
)
def test_words_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_real_text_comes_back():
    lines = read_german()
    words = WordTokenizer.train(lines, 100_000)
    assert words.decode(words.encode(lines)) == [" ".join(line.split()) for line in lines]
    pieces = SentencePieceTokenizer.train(lines, 2000)
    assert pieces.vocabulary_size == 2000
    decoded = pieces.decode(pieces.encode(lines))
    same = np.mean([a == b for a, b in zip(decoded, lines, strict=True)])
    assert same > 0.98  # NFKC changes some: … becomes three points, double spaces go


def read_german() -> list[str]:
    import gzip

    with gzip.open(data_folder("multi30k") / "val.de.gz", "rt", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]
