"""Vocabulary shortlists: learned from alignments, and searches that score their words alone."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from keras_attention.applications.base.preprocessor import padded
from keras_attention.applications.text import END_ID, SPECIAL_TOKENS, START_ID, WordTokenizer
from keras_attention.applications.translation import Shortlist, TranslationPreprocessor, Translator
from tests.applications.commands import call_command
from tests.applications.translation_runs import (
    SOURCE_LINES,
    TARGET_LINES,
    make_preprocessor,
    make_translator,
)

# Each test searches a batch or two: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
NETWORKS = ("rnnsearch", "transformer", "ensemble")
FEW, GIVEN = SOURCE_LINES[2::2], TARGET_LINES[2::2]  # short ones: an encoder runs over each piece


def translator_of(name: str, kind: str = "sentencepiece") -> Translator:
    if name != "ensemble":
        return make_translator(kind, architecture=name)
    return Translator.ensemble([translator_of(each, kind) for each in ("rnnsearch", "transformer")])


@pytest.fixture(scope="module")
def translators():
    return functools.cache(translator_of)


def some_words(translator: Translator, size: int, seed: int = 0) -> Shortlist:
    """A shortlist that prefers other words for each source word, at random."""
    pre = translator.preprocessor
    random = np.random.default_rng(seed)
    shares = random.random((pre.source_vocabulary_size, pre.target_vocabulary_size))
    frequencies = np.zeros(pre.target_vocabulary_size)
    return Shortlist(pre, sparse.csr_array(shares), frequencies, size)


def among(words, logits) -> np.ndarray:
    """Return probabilities `(T, V)` among some words, of logits `(1, T, V)`."""
    shares = np.exp(np.asarray(logits, np.float64)[0])
    shares[:, np.setdiff1d(np.arange(shares.shape[1]), words)] = 0
    return shares / shares.sum(axis=-1, keepdims=True)


def test_it_is_learned_from_the_attention_of_given_translations(translators):
    task = translators("rnnsearch")
    pre = task.preprocessor
    counts = np.zeros((pre.source_vocabulary_size, pre.target_vocabulary_size))
    frequencies = np.zeros(pre.target_vocabulary_size)
    sources = pre.source_tokenizer.encode(FEW)
    for source, each in zip(sources, task.score(FEW, GIVEN), strict=True):
        for place, y in enumerate(each.ids):
            frequencies[y] += 1
            for x, weight in zip(source, each.alignment[place], strict=True):
                counts[x, y] += weight
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
    learned = Shortlist.learn(task, FEW, GIVEN, candidates=99)
    np.testing.assert_allclose(learned.probabilities.toarray(), shares, atol=1e-9)
    np.testing.assert_allclose(learned.frequencies, frequencies / frequencies.sum())
    few = Shortlist.learn(task, FEW, GIVEN, candidates=3).probabilities.toarray()
    for row, whole in zip(few, shares, strict=True):
        np.testing.assert_allclose(np.sort(row)[-3:], np.sort(whole)[-3:], atol=1e-9)
        assert np.count_nonzero(row) <= 3


def test_a_batch_gets_the_words_with_the_largest_expected_counts(translators):
    shortlist = some_words(translators("rnnsearch"), size=13)
    source = np.array([[5, 7, 7, 11], [17, 5, 0, 0]])
    shares = shortlist.probabilities.toarray()
    expected = sum(shares[x] for x in source.ravel() if x) + shortlist.frequencies
    best = np.argsort(-expected[4:])[:9] + 4
    assert shortlist.words_of(source).tolist() == [0, 1, 2, 3, *sorted(best)]
    frequent = Shortlist(
        shortlist.preprocessor, 0 * shortlist.probabilities, np.arange(len(expected)) == 29, size=5
    )
    assert frequent.words_of(source).tolist() == [0, 1, 2, 3, 29]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.by_default("rnnsearch")
def test_a_list_of_all_words_changes_nothing(translators, name):
    task = translators(name)
    everything = some_words(task, size=10**6)
    assert everything.size == task.preprocessor.target_vocabulary_size
    for options in ({"beam_size": 1}, {"beam_size": 3, "n_best": 2}, {"sample": True, "seed": 5}):
        options["max_length"] = 5
        plain = task.translate(FEW, **options)
        found = task.translate(FEW, shortlist=everything, **options)
        for one, other in zip(plain, found, strict=True):
            assert (one.text, one.ids) == (other.text, other.ids)
            assert other.score == pytest.approx(one.score, rel=1e-5)
            np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_words_of_the_list_alone_are_written(translators, name):
    """Their log-probability is that of the network's, or the networks', scores among them."""
    task = translators(name)
    shortlist = some_words(task, size=17)
    found = task.translate(SOURCE_LINES, shortlist=shortlist, beam_size=3, min_length=3)
    ids = task.preprocessor.source_tokenizer.encode(SOURCE_LINES)
    words = shortlist.words_of(padded(ids))  # one batch
    outside = np.setdiff1d(np.arange(task.preprocessor.target_vocabulary_size), words)
    networks = getattr(task.backbone, "networks", [task.backbone])
    assert any(set(each.ids) & set(outside) for each in task.translate(SOURCE_LINES))
    for source, each in zip(ids, found, strict=True):
        assert set(each.ids) <= set(words) and len(each.ids) >= 3
        target = [START_ID, *each.ids]
        inputs = {"source": padded([source]), "target": padded([target])}
        shares = np.mean([among(words, each(inputs)) for each in networks], axis=0)
        shares[:, [0, START_ID]] = 0
        shares /= shares.sum(axis=-1, keepdims=True)
        labels = [*each.ids, END_ID][: task.search.max_length]
        total = sum(np.log(shares[place, label]) for place, label in enumerate(labels))
        assert each.log_probability == pytest.approx(total, rel=1e-4)


@pytest.mark.slow
def test_streams_share_one_compiled_search(translators, traced):
    task = translators("transformer")
    shortlist = some_words(task, size=17)
    options = {"shortlist": shortlist, "batch_size": 2, "beam_size": 2}
    one = task.translate(SOURCE_LINES, streams=1, **options)
    before = len(task._compiled_functions)
    two = task.translate(SOURCE_LINES, streams=2, **options)
    assert [each.ids for each in one] == [each.ids for each in two]
    assert len(task._compiled_functions) == before
    other = task.translate(SOURCE_LINES, streams=1, **options | {"shortlist": None})
    assert [each.ids for each in one] != [each.ids for each in other]


@pytest.mark.parametrize("kind", ["words", "sentencepiece"])
def test_a_file_keeps_it(translators, tmp_path, kind):
    task = translators("rnnsearch", kind)
    learned = Shortlist.learn(task, FEW, GIVEN, size=11)
    learned.save(tmp_path / "list.tsv")
    again = Shortlist.load(tmp_path / "list.tsv", task.preprocessor, size=11)
    wanted = learned.probabilities.toarray()
    np.testing.assert_allclose(again.probabilities.toarray(), wanted, rtol=1e-3)
    np.testing.assert_allclose(again.frequencies, learned.frequencies, rtol=1e-3)
    source = padded(task.preprocessor.source_tokenizer.encode(FEW))
    np.testing.assert_array_equal(again.words_of(source), learned.words_of(source))
    with pytest.raises(ValueError, match="exists"):
        learned.save(tmp_path / "list.tsv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("man\tmann\n", "line 1: expected source word, tab.*Received: 'man.tmann'"),
        ("a\tein\t0.5\nman\tmann\tmuch\n", "line 2: expected source word, tab, target word"),
        ("a\tein\t0.5\t0.5\n", "line 1: expected source word, tab, target word"),
        ("a\tein\t1.5\n", "line 1: expected a probability. Received: 1.5"),
        ("a\tein\tnan\n", "line 1: expected a probability. Received: nan"),
        ("a\tcheval\t0.5\n", "line 1: 'cheval' is no word of the target vocabulary"),
        ("cheval\tein\t0.5\n", "line 1: 'cheval' is no word of the source vocabulary"),
    ],
)
def test_a_file_that_is_no_shortlist_is_refused(tmp_path, content, message):
    (tmp_path / "list").write_text(content)
    preprocessor = make_preprocessor("words")
    with pytest.raises(ValueError, match=message):
        Shortlist.load(tmp_path / "list", preprocessor)


@pytest.mark.parametrize("name", ["list.tsv", "list.tsv.gz"])
def test_words_that_are_spelt_as_special_tokens_are_read_back(tmp_path, name):
    words = ["a", *SPECIAL_TOKENS, "b"]
    pre = TranslationPreprocessor(WordTokenizer(words), WordTokenizer(words[:-1]))
    shares = np.random.default_rng(0).random((10, 9)).round(3)
    Shortlist(pre, sparse.csr_array(shares), shares[0]).save(tmp_path / name)
    found = Shortlist.load(tmp_path / name, pre)
    np.testing.assert_allclose(found.probabilities.toarray(), shares)
    np.testing.assert_allclose(found.frequencies, shares[0])
    is_compressed = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
    assert is_compressed == name.endswith(".gz")


def test_what_does_not_fit_is_refused(translators):
    task = translators("rnnsearch")
    shortlist = some_words(task, size=9)
    other = translators("rnnsearch", "words")
    with pytest.raises(ValueError, match="the vocabularies that it was learned with.*other words"):
        other.translate("it rains", shortlist=shortlist)
    with pytest.raises(ValueError, match="`shortlist` should be a Shortlist. Received: 'list.tsv'"):
        task.translate("it rains", shortlist="list.tsv")
    with pytest.raises(ValueError, match="leave `engine` or `shortlist` out.*'ctranslate2'"):
        task.translate("it rains", shortlist=shortlist, engine="ctranslate2")
    with pytest.raises(ValueError, match="learned from attention. Received: RNNEncDec, without"):
        Shortlist.learn(translator_of("rnnencdec"), SOURCE_LINES, TARGET_LINES)
    with pytest.raises(ValueError, match="needs sentences to learn from. Received: none"):
        Shortlist.learn(task, [], [])
    with pytest.raises(ValueError, match="`candidates` should be a positive integer"):
        Shortlist.learn(task, SOURCE_LINES, TARGET_LINES, candidates=0)
    with pytest.raises(ValueError, match="`size` should be a positive integer"):
        Shortlist(task.preprocessor, shortlist.probabilities, shortlist.frequencies, size=0)
    with pytest.raises(ValueError, match=r"should be of shape .* Received: \(2, 3\) and \(3,\)"):
        Shortlist(task.preprocessor, sparse.csr_array((2, 3)), np.zeros(3))


@pytest.mark.slow
def test_the_command_learns_and_uses_it(translators, tmp_path, capsys):
    whole, path = translators("transformer"), tmp_path / "list.tsv"
    search = {"beam_size": 2, "max_length": 4}
    task = Translator(whole.backbone, whole.preprocessor, search)
    task.save_to_preset(tmp_path / "preset")
    for name, lines in (("source", FEW), ("target", GIVEN)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    pairs = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    learn = ["shortlist", tmp_path / "preset", *pairs, "--candidates", 2, "--output"]
    done = call_command(capsys, *learn, path)
    assert (done.status, done.out) == (0, ""), done.err
    shortlist = Shortlist.load(path, task.preprocessor, size=9)
    wanted = Shortlist.learn(task, FEW, GIVEN, candidates=2, size=9)
    assert shortlist.probabilities.nnz == wanted.probabilities.nnz
    options = ["--shortlist", path, "--shortlist-size", 9]
    done = call_command(
        capsys, "predict", tmp_path / "preset", "--input", tmp_path / "source", *options
    )
    found = task.translate(FEW, shortlist=shortlist)
    assert (done.status, done.out.splitlines()) == (0, [each.text for each in found])
    done = call_command(capsys, "evaluate", tmp_path / "preset", *pairs, "--json", *options)
    report = task.evaluate_text(FEW, GIVEN, shortlist=shortlist)
    assert done.status == 0 and f'"chrf": {report["chrf"]}' in done.out
    for arguments, message in (
        ([*learn, path], "exists"),
        (learn[:2] + learn[6:] + [tmp_path / "new"], "has no data of its own"),
        (["predict", tmp_path / "preset", *options[2:]], "goes with --shortlist only"),
        (
            ["predict", tmp_path / "preset", *options, "--engine", "ctranslate2"],
            "leave --engine out",
        ),
    ):
        done = call_command(capsys, *arguments)
        assert (done.status, done.out) == (2, "") and message in done.err, (arguments, done)


@pytest.mark.slow
def test_a_run_learns_it_from_its_own_training_pairs(trained_run, dates_data, tmp_path, capsys):
    done = call_command(capsys, "shortlist", trained_run, "--output", tmp_path / "list.tsv")
    assert done.status == 0, done.err
    lines = Path(dates_data[1]).read_text(encoding="utf-8").splitlines()
    pairs = zip(*(line.split("\t") for line in lines), strict=True)
    task = Translator.from_preset(trained_run)
    wanted = Shortlist.learn(task, *map(list, pairs))
    found = Shortlist.load(tmp_path / "list.tsv", task.preprocessor)
    np.testing.assert_allclose(found.frequencies, wanted.frequencies, rtol=1e-3)


@pytest.mark.slow
def test_trained_translators_are_measured(trained_run, tmp_path, capsys):
    from benchmarks.__main__ import main

    path = tmp_path / "list.tsv"
    assert call_command(capsys, "shortlist", trained_run, "--output", path).status == 0
    options = ["--shortlist", f"{trained_run}={path}", "--beam", "1", "--rounds", "1"]
    options += ["--alone", "2"]
    assert main(["speed-and-bleu", str(trained_run), *options]) == 0
    rows = [
        row.split(" | ") for row in capsys.readouterr().out.splitlines()[2:] if "float32" in row
    ]
    assert [row[1] for row in rows] == ["ours", "ours, 2,048 words", "LiteRT"]
    done = call_command(capsys, "evaluate", trained_run, "--beam", 1, "--json")
    bleu = json.loads(done.out)["bleu"]
    assert {row[4] for row in rows} == {f"{bleu:.1f}"}  # the list has all of so few words
    assert all(float(row[7]) > 0 for row in rows)  # ms a sentence
