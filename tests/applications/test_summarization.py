"""The summarisation application: data, ids, every architecture in training, search and export."""

import json

import numpy as np
import pytest

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.summarization import reports
from keras_attention.applications.summarization.config import ARCHITECTURES, DataConfig
from keras_attention.applications.summarization.documents import (
    load_corpus,
    read_corpus,
    split_sentences,
)
from keras_attention.applications.summarization.encoding import (
    DocumentEncoder,
    encode_corpus,
    make_batches,
)
from keras_attention.applications.summarization.evaluation import evaluate, table
from keras_attention.applications.summarization.export import export_saved_model
from keras_attention.applications.summarization.losses import NegativeLogLikelihood
from keras_attention.applications.summarization.picture import draw
from keras_attention.applications.summarization.run import load_run
from keras_attention.applications.summarization.summarizer import Summarizer
from keras_attention.text import END_ID, START_ID, UNK_ID, WordTokenizer
from tests.applications.summarization_runs import DOCUMENTS, SUMMARIES, make_run, small_config

EVERY = [*ARCHITECTURES, "transformer"]


@pytest.fixture(scope="module", params=EVERY)
def run(request, tmp_path_factory):
    """A loaded run of each architecture, and of the encoder transformer."""
    name = request.param
    options = ["--model.encoder=transformer"] if name == "transformer" else []
    options += [] if name == "transformer" else [f"--model.architecture={name}"]
    return load_run(make_run(tmp_path_factory.mktemp("run") / "run", *options))


@pytest.fixture
def traced_nowhere():
    """Searches run as they are: tracing each costs more than running it once."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def write(path, rows):
    """A file of JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def encoder(*overrides):
    """An encoder whose vocabulary lacks all names."""
    tokenizer = WordTokenizer.train(
        [line for document in DOCUMENTS for line in document] + SUMMARIES[:2],
        vocabulary_size=40,
        min_count=3,
        lowercase=True,
    )
    return DocumentEncoder(tokenizer, small_config(*overrides))


# Data.


def test_reports_are_the_same_each_time_and_hold_what_they_say():
    first, again = reports.generate("dev"), reports.generate("dev")
    assert first == again and first != reports.generate("test")[: len(first)]
    for example in first:
        text = " ".join(example.sentences)
        assert len(example.urgent) == example.summary.count("needs") >= 1
        assert all(example.sentences[i].startswith("urgent") for i in example.urgent)
        assert all(word in text.split() or word == "needs" for word in example.summary.split())


def test_files_hold_texts_or_lists(tmp_path):
    rows = [{"source": "One. Two here.", "target": "A."}]
    rows += [{"source": ["One", "", "Two"], "target": ["A", "B"]}]
    first, second = read_corpus(write(tmp_path / "f.jsonl", rows)).documents
    assert first.sentences == ["One.", "Two here."] and first.summaries == ["A."]
    assert second.sentences == ["One", "Two"] and second.summaries == ["A", "B"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: expected an object"),
        ('{"target": "a"}', "line 2: `source` must be a text or a list .* Received: nothing"),
        ('{"source": 3, "target": "a"}', "line 2: `source` .* Received: 3"),
        ('{"source": ["a", 3], "target": "a"}', "line 2: `source`"),
        ('{"source": "a", "target": {}}', "line 2: `target`"),
        ('{"source": " ", "target": "a"}', "line 2: the source has no words"),
        ('{"source": [], "target": "a"}', "line 2: the source has no words"),
        ('{"source": "a", "target": []}', "line 2: the target has no words"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = tmp_path / "f.jsonl"
    path.write_text('{"source": "a", "target": "b"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_corpus(path)


def test_empty_documents_can_be_skipped(tmp_path):
    path = write(tmp_path / "f.jsonl", [{"source": "", "target": "a"}] * 2)
    with pytest.raises(UserError, match="no document has any words"):
        read_corpus(path, "skip")
    write(path, [{"source": "", "target": "a"}, {"source": "b", "target": "c"}])
    corpus = read_corpus(path, "skip")
    assert len(corpus) == 1 and corpus.empty == 1


def test_sentences_end_where_punkt_says_and_at_line_ends():
    text = "It rose 3.5 per cent. Nobody saw it!\nA heading\nThe end."
    assert split_sentences(text) == [
        "It rose 3.5 per cent.",
        "Nobody saw it!",
        "A heading",
        "The end.",
    ]


def test_there_must_be_data(tmp_path):
    with pytest.raises(UserError, match="There is no dev data"):
        load_corpus(DataConfig(), "dev")
    with pytest.raises(UserError, match="There is no file"):
        load_corpus(DataConfig(dev_file=str(tmp_path / "none.jsonl")), "dev")


# Ids.


def test_unknown_words_are_numbered_in_their_document_and_found_in_its_summary():
    encode = encoder()
    size = encode.tokenizer.vocabulary_size
    document = encode.document(["Bakilo of the mill .", "the Bakilo Dofina ."])
    flat = [index for sentence in document.ids for index in sentence]
    names = {"bakilo": size, "dofina": size + document.unknown.index("dofina")}
    words = [word for sentence in document.words for word in sentence]
    assert [index for word, index in zip(words, flat, strict=True) if word in names] == [
        names["bakilo"],
        names["bakilo"],
        names["dofina"],
    ]
    inputs, labels = encode.summary("Dofina Nobody the", document)
    assert labels[:2] == [names["dofina"], UNK_ID] and labels[2] < size
    assert inputs[:2] == [UNK_ID, UNK_ID]
    assert encode.word(names["dofina"], document) == "dofina"
    assert encode.word(size + 4, document) == encode.word(UNK_ID, document)


def test_a_document_with_more_unknown_words_than_numbers():
    encode = encoder("--tokenizer.extra_words=2")
    document = encode.document(["xa xb xc xd xa"])
    size = encode.tokenizer.vocabulary_size
    assert document.ids == [[size, size + 1, UNK_ID, UNK_ID, size]]


def test_without_a_pointer_nothing_is_numbered():
    encode = encoder("--model.pointer=false")
    assert encode.document(["xa xb"]).ids == [[UNK_ID, UNK_ID]]


def test_documents_are_cut_by_words_and_by_sentences_and_it_is_reported(tmp_path):
    encode = encoder("--data.max_words=3", "--data.max_sentences=2")
    document = encode.document(["the mill", "the mill the", "the"])
    assert [len(sentence) for sentence in document.ids] == [2, 1] and document.is_cut
    assert not encode.document(["the mill", "the"]).is_cut
    corpus = read_corpus(write(tmp_path / "f.jsonl", [{"source": ["the"] * 5, "target": "the"}]))
    assert "1 of them cut short" in encode_corpus(corpus, encode).report
    refusing = encoder("--data.max_sentences=2", "--data.on_too_long=error")
    with pytest.raises(UserError, match="line 1: longer than data.max_sentences 2"):
        encode_corpus(corpus, refusing)
    skipping = encoder("--data.max_sentences=2", "--data.on_too_long=skip")
    with pytest.raises(UserError, match="no document is left"):
        encode_corpus(corpus, skipping)
    assert len(encode_corpus(corpus, skipping, skip=False).inputs) == 1


def test_a_summary_may_be_longer_than_its_document(tmp_path):
    rows = [{"source": "Bakilo", "target": "Bakilo of the mill needs two ropes ."}]
    encode = encoder()
    encoded = encode_corpus(read_corpus(write(tmp_path / "f.jsonl", rows)), encode)
    assert sum(map(len, encoded.documents[0])) == 1 and len(encoded.labels[0]) == 9
    assert encoded.labels[0][0] == encode.tokenizer.vocabulary_size


@pytest.mark.parametrize("hierarchical", [False, True])
def test_batches_hold_each_document_once(tmp_path, hierarchical):
    rows = [{"source": d, "target": s} for d, s in zip(DOCUMENTS, SUMMARIES, strict=True)]
    encode = encoder()
    encoded = encode_corpus(read_corpus(write(tmp_path / "f.jsonl", rows)), encode)
    batches = make_batches(encoded, batch_size=2, hierarchical=hierarchical)
    seen = []
    for inputs, labels in batches.to_dataset(epochs=1):
        assert inputs["source"].shape.rank == 3
        for source, target, label in zip(inputs["source"], inputs["target"], labels, strict=True):
            if np.any(label != 0):
                ids = [int(i) for i in np.ravel(source) if i]
                assert target[0] == START_ID and label[np.count_nonzero(label) - 1] == END_ID
                seen.append(ids)
    flat = [[i for sentence in document for i in sentence] for document in encoded.documents]
    assert sorted(seen) == sorted(flat)


# Models.


def test_switches_and_architectures():
    assert small_config("--model.architecture=paulus2017").model.intra_decoder
    own = small_config("--model.architecture=paulus2017", "--model.intra_decoder=false").model
    assert own.temporal and not own.intra_decoder
    with pytest.raises(UserError, match="switch one off"):
        small_config("--model.coverage=true", "--model.temporal=true")
    with pytest.raises(UserError, match="must be even"):
        small_config("--model.units=7")
    with pytest.raises(UserError, match="label_smoothing must be 0"):
        small_config("--training.label_smoothing=0.1")


def test_every_architecture_learns(run, tmp_path):
    rows = [{"source": d, "target": s} for d, s in zip(DOCUMENTS, SUMMARIES, strict=True)]
    encoded = encode_corpus(read_corpus(write(tmp_path / "f.jsonl", rows)), run.encoder)
    batches = make_batches(encoded, 3, run.model.is_hierarchical, shuffle=False)
    before = [np.asarray(weight) for weight in run.model.trainable_weights]
    run.model.compile("adam", NegativeLogLikelihood(), run_eagerly=True)
    run.model.optimizer.learning_rate.assign(0.02)
    inputs, labels = next(iter(batches.to_dataset(epochs=1)))
    losses = [run.model.train_on_batch(inputs, labels) for _ in range(8)]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]
    for weight, old in zip(run.model.trainable_weights, before, strict=True):
        assert np.any(np.asarray(weight) != old), weight.path
        weight.assign(old)


def test_the_loss_takes_a_weight_for_each_document():
    """As batches do that are filled up with rows of zeros, for several devices of JAX."""
    labels, log_p = np.array([[5, 7, 0], [6, 0, 0]]), np.array([[-1.0, -3, -9], [-4, -9, -9]])
    loss = NegativeLogLikelihood()
    assert float(loss(labels, log_p)) == pytest.approx(8 / 3)
    assert float(loss(labels, log_p, np.array([1.0, 0.5]))) == pytest.approx(6 / 2.5)
    assert float(loss(labels, log_p, np.array([1.0, 0.0]))) == pytest.approx(2.0)


def test_a_summary_says_where_its_words_come_from(run, traced_nowhere):
    given = [*DOCUMENTS, [], "Bakilo of the mill. It rains."]
    results = Summarizer(run).summarize(given)
    assert results[3].text == "" and results[3].attention.shape == (0, 0)
    # Nothing keeps the weights of a whole batch, which are many of long documents.
    for part in (part for each in results for part in (each.attention, each.p_gen)):
        assert part.base is None or part.base.size == part.size
    alone = Summarizer(run).summarize(given, attention=False)
    assert [each.text for each in alone] == [each.text for each in results]
    assert all(each.attention is None and each.p_gen is None for each in alone)
    for sentences, result in zip(DOCUMENTS, results, strict=False):
        document = run.encoder.document(sentences)
        words = sum(map(len, result.source))
        assert result.attention.shape == (len(result.tokens), words)
        np.testing.assert_allclose(result.attention.sum(axis=1), 1.0, atol=1e-4)
        assert result.sentence_weights.shape == (len(result.tokens), len(sentences))
        assert np.all((result.p_gen >= 0) & (result.p_gen <= 1))
        copied = [word for word, new in zip(result.tokens, result.copied, strict=True) if new]
        assert copied == [word for word in result.tokens if word in document.unknown]


def test_words_alike_in_search_and_in_training(run):
    """Step by step and at once, the model gives the same log probabilities."""
    from keras_attention.applications.summarization.encoding import as_read, padded_documents

    document = run.encoder.document(DOCUMENTS[0])
    source = padded_documents([as_read(document.ids, run.model.is_hierarchical)])
    inputs, labels = run.encoder.summary(SUMMARIES[0], document)
    target, label = np.array([[START_ID, *inputs]]), np.array([[*labels, END_ID]])
    expected = np.asarray(run.model({"source": source, "target": target, "labels": label}))[0]
    state = run.model.start(source, max_length=9)
    found = []
    for token, wanted in zip(target[0], label[0], strict=True):
        log_p, state = run.model.step(np.array([token]), state)
        found.append(float(log_p[0, wanted]))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_lengths_and_blocked_ngrams(run, traced_nowhere):
    summarizer = Summarizer(run)
    for result in summarizer.summarize(DOCUMENTS, min_length=5, max_length=6, no_repeat_ngram=2):
        assert 5 <= len(result.tokens) <= 6
        pairs = list(zip(result.tokens, result.tokens[1:], strict=False))
        ids = [pair for pair in pairs if "<unk>" not in pair]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ["see2017", "nallapati2016-hierarchical"])
def test_an_exported_summariser_writes_the_same(name, tmp_path):
    import tensorflow as tf

    run = load_run(make_run(tmp_path / "run", f"--model.architecture={name}"))
    export_saved_model(run, tmp_path / "exported")
    serve = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    texts = ["\n".join(document) for document in DOCUMENTS] + ["", "\n\n"]
    served = serve(text=tf.constant(texts))
    results = Summarizer(run).summarize([*DOCUMENTS, [], []])
    assert [text.decode() for text in served["summary"].numpy()] == [r.text for r in results]
    np.testing.assert_allclose(served["scores"], [r.score for r in results], atol=1e-4)
    assert serve(text=tf.constant([], tf.string))["summary"].shape == (0,)


def test_evaluation_and_picture(run, tmp_path, traced_nowhere):
    rows = [{"source": d, "target": [s, "b"]} for d, s in zip(DOCUMENTS, SUMMARIES, strict=True)]
    corpus = read_corpus(write(tmp_path / "f.jsonl", rows))
    report = json.loads(json.dumps(evaluate(run, corpus, lead=1)))
    assert report["documents"] == 3 and 0 <= report["rouge1"] <= 100
    assert report["lead_rouge"]["rouge1"] > 0 and "lead-1" in table(report)
    summarizer = Summarizer(run)
    if summarizer.summarize([DOCUMENTS[0]])[0].tokens:
        draw(summarizer, DOCUMENTS[0], tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 1000
    with pytest.raises(UserError, match="nothing to draw"):
        draw(summarizer, "", tmp_path / "none.png")


def test_documents_searched_together_are_not_padded_without_bound(run):
    """A sentence of 5,000 words goes alone where fifty sentences would be padded to it."""
    encode = DocumentEncoder(run.encoder.tokenizer, small_config("--data.max_words=10000"))
    documents = [["a b"] * 50, ["a " * 5000], ["a b"] * 50, [], ["a b"] * 50]
    batches = list(Summarizer(run)._batches([encode.document(each) for each in documents], 4))
    assert batches == ([[0, 2, 4], [1]] if run.model.is_hierarchical else [[0, 2, 4, 1]])
    batches = Summarizer(run)._batches([encode.document(["a"])] * 5, 2)
    assert list(batches) == [[0, 1], [2, 3], [4]]


def test_odd_batches_have_finite_gradients(run):
    """A document of padding alone, a sentence of padding, a summary longer than its document."""
    import tensorflow as tf

    extra = run.encoder.tokenizer.vocabulary_size if run.config.model.pointer else UNK_ID
    source = np.zeros((3, 3, 2), "int32")
    source[1] = [[5, 6], [0, 0], [7, 0]]
    source[2, 0, 0] = extra  # one word, which is unknown
    labels = np.array([[5, 6, 7, 5, 6, END_ID], [extra, END_ID, 0, 0, 0, 0], [extra] * 5 + [0]])
    target = np.where(labels >= extra, UNK_ID, labels)
    with tf.GradientTape() as tape:
        log_p = run.model({"source": source, "target": target, "labels": labels}, training=True)
        loss = NegativeLogLikelihood()(labels, log_p) + sum(run.model.losses)
    gradients = tape.gradient(loss, [each.value for each in run.model.trainable_variables])
    assert np.all(np.isfinite(log_p)) and np.isfinite(float(loss))
    assert all(np.all(np.isfinite(tf.convert_to_tensor(each))) for each in gradients)


def test_a_model_without_attention_reads_the_last_state_alone(tmp_path, traced_nowhere):
    off = [f"--model.{name}=false" for name in ("attention", "coverage", "pointer")]
    run = load_run(make_run(tmp_path / "run", *off))
    memory, mask, _ = run.model.encode(np.array([[[5, 6, 7]], [[8, 0, 0]]]))
    assert tuple(memory.shape) == (2, 1, 6) and np.all(mask)
    (result,) = Summarizer(run).summarize([DOCUMENTS[0]], max_length=3, min_length=3)
    assert len(result.tokens) == 3 and not np.any(result.attention)
    with pytest.raises(UserError, match="model.attention false"):
        draw(Summarizer(run), DOCUMENTS[0], tmp_path / "picture.png")
    with pytest.raises(UserError, match="nothing to copy by"):
        small_config("--model.attention=false")


@pytest.mark.parametrize("document", [["word"], ["a b ."] * 5000, ["Xyz Xyw Xyv"]])
def test_odd_documents_pass(run, document, traced_nowhere):
    """One word, 5,000 sentences, unknown words alone."""
    (result,) = Summarizer(run).summarize([document])
    assert len(result.source) <= run.config.data.max_sentences
    assert np.all(np.isfinite(result.attention)) and np.isfinite(result.score)
