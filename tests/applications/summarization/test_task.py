"""The summarisation application: data, ids, every architecture in training, search and export."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.data.made import reports
from keras_attention.applications.errors import UserError
from keras_attention.applications.summarization import SummarizationModel, Summarizer
from keras_attention.applications.summarization.config import ARCHITECTURES, DataConfig
from keras_attention.applications.summarization.data import (
    encode,
    load_corpus,
    make_batches,
    read_corpus,
)
from keras_attention.applications.summarization.networks import encoders
from keras_attention.applications.summarization.preprocessor import (
    SummarizationPreprocessor,
    split_sentences,
)
from keras_attention.applications.summarization.results import (
    Summary,
    evaluation_report,
    in_lines,
    table,
)
from keras_attention.applications.text import END_ID, START_ID, UNK_ID
from keras_attention.losses import MaskedSparseCategoricalCrossentropy
from tests.applications.summarization_runs import (
    CORPUS,
    DOCUMENTS,
    SUMMARIES,
    small_config,
    small_summarizer,
)

# Searches run once: tracing each costs more.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
# Each trains and searches for seconds: the default one and the one of another shape stand for all.
FAST = "see2017", "nallapati2016-hierarchical"
EVERY = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST))
    for name in [*ARCHITECTURES, "transformer"]
]


@pytest.fixture(scope="module", params=EVERY)
def task(request):
    """A summariser of each architecture, and of the encoder transformer."""
    key = "encoder" if request.param == "transformer" else "architecture"
    return small_summarizer(f"--model.{key}={request.param}")


GIVEN = [*DOCUMENTS, [], "Bakilo of the mill. It rains."]


@pytest.fixture(scope="module")
def results(module_traced_nowhere, task):
    """What the summariser writes about GIVEN; the tests below share it."""
    return task.summarize(GIVEN)


@pytest.fixture(scope="module")
def default_task():
    return small_summarizer()


def write(path, rows):
    """A file of JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def preprocessor(**options):
    """A preprocessor whose vocabulary lacks all names."""
    sizes = {"vocabulary_size": 40, "min_count": 3, "extra_words": 5, "max_words": 30}
    return SummarizationPreprocessor.adapt(DOCUMENTS, SUMMARIES[:2] + ["."], **{**sizes, **options})


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
    corpus = read_corpus(write(tmp_path / "f.jsonl", rows))
    assert corpus["source"] == [["One.", "Two here."], ["One", "Two"]]
    assert corpus["target"] == [["A."], ["A", "B"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{a", r"line 2: expected a JSON object .*, column 2\). Received: '{a'"),
        ("[1]", "line 2: expected a JSON object. Received: list"),
        pytest.param("[" * 10**5, "line 2: not JSON that can be read", id="deep"),
        ('{"source": "\\ud800", "target": "a"}', "line 2: expected Unicode text"),
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
    assert len(corpus) == 1 and corpus.report.left_out == {"empty": 1}
    assert str(corpus.place(0)).endswith("f.jsonl, line 2")


def test_texts_of_every_kind_are_read_alike():
    read = small_summarizer().read_columns
    expected = read(["a dog .", "a cat"], ["b", "c"])
    pairs = [["a dog .", "b"], ["a cat", "c"]]
    columns = [[b"a dog ."], np.array(["a cat"])], [["b"], b"c"]
    for given in ((pairs,), (np.array(pairs),), columns):
        assert read(*given) == expected


def test_sizes_go_with_a_network_without_pointer_too():
    task = Summarizer.from_texts(
        ["a b"], ["a"], units=4, pointer=False, tokenizer={"extra_words": 5}
    )
    assert task.backbone.extra_size == task.preprocessor.extra_words == 0


def test_sentences_end_by_rules_and_at_line_ends():
    text = "It rose 3.5 per cent. Nobody saw it!\nA heading\nThe end."
    expected = ["It rose 3.5 per cent.", "Nobody saw it!", "A heading", "The end."]
    assert split_sentences(text) == expected


def test_parts_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Received: 2 in documents, 1 in summaries"):
        SummarizationPreprocessor.adapt(["a", "b"], ["c"])
    task = small_summarizer()
    with pytest.raises(ValueError, match="Received: search='beam'"):
        Summarizer(task.backbone, task.preprocessor, search="beam")
    network = SummarizationModel(30, 6, 5, cell=keras.layers.GRUCell(6))
    copy = SummarizationModel.from_config(network.get_config())
    assert type(copy.decoder.cell) is keras.layers.GRUCell and len(copy.bridges) == 1
    with pytest.raises(ValueError, match=r"many units as the network \(6\). Received: .* size 7"):
        SummarizationModel(30, 6, 5, cell=keras.layers.LSTMCell(7))
    with pytest.raises(ValueError, match="at least one document"):
        task.evaluate_text([], [])
    for weights, message in {
        (1.0, 2.0): "Received: 1 in x, 1 in y, 2 in sample_weight",
        (float("nan"),): r"`sample_weight` should hold numbers. Received: \[nan\]",
        (None,): r"`sample_weight` should hold numbers. Received: \[None\]",
    }.items():
        with pytest.raises(ValueError, match=message):
            task.fit(["a"], ["b"], sample_weight=weights)
    with pytest.raises(ValueError, match="Received: 2 in x, 1 in y"):
        task.preprocessor(["a", "b"], y=["c"])
    with pytest.raises(ValueError, match="`lead` should be a positive integer. Received: lead=1.5"):
        task.evaluate_text(["a"], ["b"], lead=1.5)
    for encoder, wrong in (
        (encoders.FlatEncoder, {"units": -2}),
        (encoders.HierarchicalEncoder, {"units": 8, "max_sentences": 0}),
        (encoders.TransformerReader, {"size": 8, "layers": -1}),
    ):
        with pytest.raises(ValueError, match=f"`{[*wrong][-1]}` should be a positive integer. Rec"):
            encoder(**wrong)
    alone = Summarizer(task.backbone)
    for use, given in ((alone.summarize, "a"), (alone.export, tmp_path / "new")):
        with pytest.raises(ValueError, match="Received: preprocessor=None"):
            use(given)
    assert not (tmp_path / "new").exists()


def test_there_must_be_data(tmp_path):
    with pytest.raises(UserError, match="There is no dev data"):
        load_corpus(DataConfig(), "dev")
    with pytest.raises(UserError, match="There is no file"):
        load_corpus(DataConfig(dev=str(tmp_path / "none.jsonl")), "dev")


def test_unknown_words_are_numbered_in_their_document_and_found_in_its_summary():
    encode = preprocessor()
    size = encode.vocabulary_size
    document = encode.document(["Bakilo of the mill .", "the Bakilo Dofina ."])
    flat = [index for sentence in document.ids for index in sentence]
    names = {"bakilo": size, "dofina": size + document.unknown.index("dofina")}
    words = [word for sentence in document.words for word in sentence]
    found = [index for word, index in zip(words, flat, strict=True) if word in names]
    assert found == [names["bakilo"], names["bakilo"], names["dofina"]]
    inputs, labels = encode.summary("Dofina Nobody the", document)
    assert labels[:2] == [names["dofina"], UNK_ID] and labels[2] < size
    assert inputs[:2] == [UNK_ID, UNK_ID]
    assert encode.word(names["dofina"], document) == "dofina"
    assert encode.word(size + 4, document) == encode.word(UNK_ID, document)


def test_a_document_with_more_unknown_words_than_numbers():
    encode = preprocessor(extra_words=2)
    size = encode.vocabulary_size
    assert encode.document(["xa xb xc xd xa"]).ids == [[size, size + 1, UNK_ID, UNK_ID, size]]
    assert preprocessor(extra_words=0).document(["xa xb"]).ids == [[UNK_ID, UNK_ID]]


@pytest.mark.parametrize("by_sentence", [False, True])
def test_ids_in_a_graph_are_those_of_python(by_sentence, traced):
    encode = preprocessor(extra_words=2, by_sentence=by_sentence, max_words=12, max_summary_words=3)
    texts = ["\n".join(document) for document in DOCUMENTS] + ["xa xb xc xd", ""]
    summaries = [*SUMMARIES, "xb xd xa xc", ""]
    expected = encode(texts, y=summaries)
    found = encode(tf.constant(texts), y=tf.constant(summaries))
    keras.tree.map_structure(np.testing.assert_array_equal, found, expected)


def test_documents_are_cut_by_words_and_by_sentences_and_it_is_reported(tmp_path):
    limits = {"max_words": 3, "max_sentences": 2}
    preprocess = preprocessor(**limits)
    document = preprocess.document(["the mill", "mill the the", "the"])
    assert [len(sentence) for sentence in document.ids] == [2, 1] and document.is_cut
    assert not preprocess.document(["the mill", "the"]).is_cut
    rows = [{"source": ["the"] * 5, "target": "the"}]
    path = str(write(tmp_path / "f.jsonl", rows))

    def encoded(on_too_long, split="train"):
        data = DataConfig(train=path, dev=path, on_too_long=on_too_long)
        return encode(load_corpus(data, split), preprocess)

    assert "1 was cut short." in str(encoded("truncate").report)
    with pytest.raises(UserError, match="line 1: .* longer than is read .*data.max_sentences 2"):
        encoded("error")
    with pytest.raises(UserError, match="no document is left"):
        encoded("skip")
    assert len(encoded("skip", "dev")) == 1  # only training data are skipped


def test_a_summary_may_be_longer_than_its_document(tmp_path):
    rows = [{"source": "Bakilo", "target": "Bakilo of the mill needs two ropes ."}]
    preprocess = preprocessor()
    encoded = encode(read_corpus(write(tmp_path / "f.jsonl", rows)), preprocess)
    assert len(encoded["source"][0]) == 1 and len(encoded["labels"][0]) == 8
    assert encoded["labels"][0][0] == preprocess.vocabulary_size


@pytest.mark.parametrize("by_sentence", [False, True])
def test_batches_hold_each_document_once_with_its_weight(default_task, by_sentence):
    preprocess = preprocessor(by_sentence=by_sentence)
    documents, summaries = DOCUMENTS, [[each] for each in SUMMARIES]
    corpus = default_task.read_columns(documents, summaries, [1.0, 2.0, 3.0])
    encoded = encode(corpus, preprocess)
    seen = {}
    for inputs, labels, weights in make_batches(encoded, batch_size=2).to_dataset(epochs=1):
        assert inputs["source"].shape.rank == 3
        rows = zip(inputs["source"], inputs["target"], labels, weights, strict=True)
        for source, target, label, weight in rows:
            assert bool(np.any(label != 0)) == bool(weight)
            if weight:
                assert target[0] == START_ID and label[np.count_nonzero(label) - 1] == END_ID
                seen[float(weight)] = [int(i) for i in np.ravel(source) if i]
    flat = [[i for i in document if i != END_ID] for document in encoded["source"]]
    assert any(END_ID in document for document in encoded["source"]) == by_sentence
    assert [seen[weight] for weight in (1.0, 2.0, 3.0)] == flat


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("one text", ["a"], "`x` should be a sequence"),
        (["a", None], ["b", "c"], r"Received: x\[1\]=None"),
        (["a", ["b", 3]], ["b", "c"], r"Received: x\[1\]=\['b', 3\]"),
        (["a", "b"], ["b", float("nan")], r"Received: y\[1\]=nan"),
        (["a"], ["b", "c"], "Received: 1 in x, 2 in y"),
        (["a", " "], ["b", "c"], r"Received: x\[1\] without any"),
        ([], [], "at least one document"),
        (["a", "b"], None, "pairs of them"),
        (None, None, "pairs of them"),
        ({"a": "b"}, ["c"], r"`x` should be a sequence.*Received: x=\{'a': 'b'\}"),
    ],
)
def test_data_that_cannot_be_learnt_from_are_refused(default_task, x, y, message):
    with pytest.raises(ValueError, match=message):
        default_task.fit(x, y)


def test_switches_and_architectures():
    assert small_config("--model.architecture=paulus2017").model.intra_decoder
    own = small_config("--model.architecture=paulus2017", "--model.intra_decoder=false")
    assert own.model.temporal and not own.model.intra_decoder
    with pytest.raises(UserError, match="switch one off"):
        small_config("--model.coverage=true", "--model.temporal=true")
    with pytest.raises(UserError, match="must be even"):
        small_config("--model.units=7")
    with pytest.raises(
        UserError, match="label_smoothing has no meaning where words are generated and copied"
    ):
        small_config("--training.label_smoothing=0.1")


def test_a_network_of_another_preprocessor_is_refused(task):
    other = preprocessor(extra_words=5, by_sentence=task.backbone.reads_sentences)
    with pytest.raises(ValueError, match="`vocabulary_size` should be the preprocessor's"):
        Summarizer(task.backbone, other)
    settings = task.preprocessor.get_config()
    for name, value in {"extra_words": 7, "by_sentence": not settings["by_sentence"]}.items():
        wrong = SummarizationPreprocessor.from_config({**settings, name: value})
        with pytest.raises(ValueError, match=f"`{name}` should"):
            Summarizer(task.backbone, wrong)


def batch_of(task):
    """The documents with their summaries, as one batch."""
    return next(iter(make_batches(task.encode(CORPUS), 3, shuffle=False).to_dataset(epochs=1)))


@pytest.mark.by_default("see2017")
def test_every_architecture_learns_and_the_log_probabilities_are_logits(task):
    before = [np.asarray(weight) for weight in task.backbone.trainable_weights]
    inputs, labels = batch_of(task)
    log_p = task.backbone(inputs)
    total = np.exp(log_p).sum(axis=-1)[np.asarray(labels) != 0]
    np.testing.assert_allclose(total, 1.0, atol=1e-4)
    features = task.backbone.features(inputs)
    expected = MaskedSparseCategoricalCrossentropy()(labels, log_p)
    loss = task.feature_loss(task.default_loss())(labels, features)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert task.feature_loss(MaskedSparseCategoricalCrossentropy(label_smoothing=0.1)) is None
    measure = task.development(None, make_batches(task.encode(CORPUS), 3), None)
    assert measure()["val_loss"] == pytest.approx(float(expected), rel=1e-4)

    task.compile(keras.optimizers.Adam(0.02), run_eagerly=True)
    # Keras' own: KerasHub's would preprocess what is encoded already.
    losses = [keras.Model.train_on_batch(task, inputs, labels) for _ in range(2)]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]
    for weight, old in zip(task.backbone.trainable_weights, before, strict=True):
        assert np.any(np.asarray(weight) != old), weight.path
        weight.assign(old)


def test_the_loss_takes_a_weight_for_each_document(task):
    """As batches do that are filled up with rows of zeros, for several devices of JAX."""
    inputs, labels = batch_of(task)
    features = task.backbone.features(inputs)
    losses = -np.asarray(task.backbone.log_likelihood(labels, features))
    real, weights = np.asarray(labels) != 0, np.array([1.0, 0.5, 0.0], "float32")
    kept = real * weights[:, None]
    loss = task.feature_loss(task.default_loss())
    assert float(loss(labels, features, weights)) == pytest.approx(
        (losses * kept).sum() / kept.sum(), rel=1e-5
    )


@pytest.mark.by_default("see2017")
def test_a_summary_says_where_its_words_come_from(task, results):
    assert results[3].text == "" and results[3].attention.shape == (0, 0)
    # Nothing keeps the weights of a whole batch, which are many of long documents.
    for part in (part for each in results for part in (each.attention, each.p_gen)):
        assert part.base is None or part.base.size == part.size
    alone = task.summarize(GIVEN[2:4], return_attention=False)
    assert [each.text for each in alone] == [each.text for each in results[2:4]]
    assert all(each.attention is None and each.p_gen is None for each in alone)
    for sentences, result in zip(DOCUMENTS, results, strict=False):
        document = task.preprocessor.document(sentences)
        words = sum(map(len, result.source))
        assert result.attention.shape == (len(result.tokens), words)
        np.testing.assert_allclose(result.attention.sum(axis=1), 1.0, atol=1e-4)
        assert result.sentence_weights.shape == (len(result.tokens), len(sentences))
        assert np.all((result.p_gen >= 0) & (result.p_gen <= 1))
        copied = [word for word, new in zip(result.tokens, result.copied, strict=True) if new]
        assert copied == [word for word in result.tokens if word in document.unknown]


def test_words_alike_in_search_and_in_training(task):
    """Step by step and at once, the model gives the same log probabilities."""
    document = task.preprocessor.document(DOCUMENTS[0])
    source = task.preprocessor.source([document])
    inputs, labels = task.preprocessor.summary(SUMMARIES[0], document)
    target, label = np.array([[START_ID, *inputs]]), np.array([[*labels, END_ID]])
    features = task.backbone.features({"source": source, "target": target})
    expected = np.asarray(task.backbone.log_likelihood(label, features))[0]
    state = task.backbone.start(source, max_length=9)
    found = []
    for token, wanted in zip(target[0], label[0], strict=True):
        log_p, state = task.backbone.step(np.array([token]), state)
        found.append(float(log_p[0, wanted]))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_lengths_and_blocked_ngrams(task):
    for result in task.summarize(DOCUMENTS, min_length=5, max_length=6, no_repeat_ngram=2):
        assert 5 <= len(result.tokens) <= 6
        pairs = list(zip(result.tokens, result.tokens[1:], strict=False))
        ids = [pair for pair in pairs if "<unk>" not in pair]
        assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_several_summaries_samples_and_limits(default_task, tmp_path):
    task = default_task
    best = task.summarize(DOCUMENTS, n_best=2)[0]
    assert len(best.ranked) == 2 and best.score >= best.alternatives[0].score
    assert best.alternatives[0].text != best.text
    drawn = [task.summarize(DOCUMENTS, sample=True, seed=seed) for seed in (1, 1, 2)]
    texts = [[each.text for each in results] for results in drawn]
    assert texts[0] == texts[1] != texts[2]
    task.export(tmp_path / "sampler", sample=True)  # its state is saved with it
    limits = {"max_length": 60, "min_length": 15, "max_length_ratio": 1.0}
    short = task.summarize([["word"], ["a b"]], beam_size=1, **limits)
    assert max(len(each.tokens) for each in short) <= 16
    covering = task.summarize(DOCUMENTS[0:1], coverage_penalty=3.0, return_attention=False)[0]
    assert covering.attention is None and covering.score < best.score


@pytest.mark.parametrize("task", FAST, indirect=True)
@pytest.mark.by_default("see2017")
def test_an_exported_summariser_writes_the_same(task, results, tmp_path):
    task.export(tmp_path / "exported")
    serve = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    served = serve(text=tf.constant([*map("\n".join, DOCUMENTS), "", "\n\n"]))
    expected = [*results[:4], results[3]]
    assert [text.decode() for text in served["summary"].numpy()] == [r.text for r in expected]
    np.testing.assert_allclose(served["scores"], [r.score for r in expected], atol=1e-4)
    assert serve(text=tf.constant([], tf.string))["summary"].shape == (0,)


def test_rouge_lsum_is_of_sentences():
    def summary(text):
        return Summary(text, 0.0, 0.0, text.split(), np.zeros(0), np.zeros(0), [])

    assert in_lines("it rained . “the dogs ran.” 3.5 km! no") == (
        "it rained .\n“the dogs ran.”\n3.5 km!\nno"
    )
    assert in_lines("天气好。他来了！") == "天气好。\n他来了！"
    text, other = "it rained . the dogs ran .", "the dogs ran . it rained ."
    report = evaluation_report([summary(text)], [[other]], {"lead": [other]}, [other.split()])
    assert report["rougeLsum"] == pytest.approx(100) and report["rougeL"] < 70
    assert report["exact_match"] == 0 and report["lead_rouge"]["rougeLsum"] == pytest.approx(100)


@pytest.mark.by_default("see2017")
def test_evaluation_and_picture(task, results, tmp_path):
    summaries = [[summary, "b"] for summary in SUMMARIES]
    report = json.loads(json.dumps(task.evaluate_text(DOCUMENTS, summaries, lead=1)))
    assert report["documents"] == 3 and report["signature"].endswith("letters of all scripts")
    assert 0 <= report["rouge1_low"] <= report["rouge1"] <= report["rouge1_high"] <= 100
    assert 0 < report["lead_rouge"]["rouge1"] <= report["oracle_rouge"]["rouge1"]
    assert report["rougeLsum_low"] <= report["rougeLsum"] and "Lsum of sent" in report["signature"]
    assert "ROUGE-Lsum" in table({"data": "here", **report})
    assert all(name in table({"data": "here", **report}) for name in ("lead-1", "oracle-1"))
    if results[0].tokens:
        result = task.draw(DOCUMENTS[0], tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
        assert "data:image/png;base64," in result._repr_html_()
        assert all(token in result.show() for token in result.tokens)
    with pytest.raises(ValueError, match="nothing to draw"):
        task.draw("", tmp_path / "none.png")


def test_documents_searched_together_are_not_padded_without_bound(task):
    """A sentence of 5,000 words goes alone where fifty sentences would be padded to it."""
    settings = {**task.preprocessor.get_config(), "max_words": 10_000}
    long = Summarizer(task.backbone, SummarizationPreprocessor.from_config(settings))
    documents = [["a b"] * 50, ["a " * 5000], ["a b"] * 50, [], ["a b"] * 50]
    encoded = [long.preprocessor.document(each) for each in documents]
    expected = [[0, 2, 4], [1]] if task.backbone.reads_sentences else [[0, 2, 4, 1]]
    assert list(long._batches(encoded, 4)) == expected
    batches = long._batches([long.preprocessor.document(["a"])] * 5, 2)
    assert list(batches) == [[0, 1], [2, 3], [4]]


def test_odd_batches_have_finite_gradients(task):
    """A document of padding alone, a sentence of padding, a summary longer than its document."""
    network = task.backbone
    extra = network.vocabulary_size if network.extra_size else UNK_ID
    source = np.zeros((3, 3, 2), "int32")
    source[1] = [[5, 6], [0, 0], [7, 0]]
    source[2, 0, 0] = extra  # one word, which is unknown
    labels = np.array([[5, 6, 7, 5, 6, END_ID], [extra, END_ID, 0, 0, 0, 0], [extra] * 5 + [0]])
    target = np.where(labels >= extra, UNK_ID, labels)
    with tf.GradientTape() as tape:
        features = network.features({"source": source, "target": target}, training=True)
        loss = task.feature_loss(task.default_loss())(labels, features) + sum(network.losses)
    gradients = tape.gradient(loss, [each.value for each in network.trainable_variables])
    assert np.isfinite(float(loss))
    assert all(np.all(np.isfinite(tf.convert_to_tensor(each))) for each in gradients)


def test_a_model_without_attention_reads_the_last_state_alone(tmp_path):
    off = [f"--model.{name}=false" for name in ("attention", "coverage", "pointer")]
    task = small_summarizer(*off)
    memory, mask, _ = task.backbone.encode(np.array([[[5, 6, 7]], [[8, 0, 0]]]))
    assert tuple(memory.shape) == (2, 1, 6) and np.all(mask)
    (result,) = task.summarize([DOCUMENTS[0]], max_length=3, min_length=3)
    assert len(result.tokens) == 3 and not np.any(result.attention)
    assert result.picture == ""
    with pytest.raises(ValueError, match="model.attention false"):
        task.draw(DOCUMENTS[0], tmp_path / "picture.png")
    with pytest.raises(UserError, match="nothing to copy by.* Received: pointer="):
        small_config("--model.attention=false")


def test_odd_documents_pass(task):
    """One word, 5,000 sentences, unknown words alone."""
    for documents in ([["word"]], [["a b ."] * 5000, ["Xyz Xyw Xyv"]]):
        for result in task.summarize(documents, max_length=4):
            assert len(result.source) <= task.preprocessor.max_sentences
            assert np.all(np.isfinite(result.attention)) and np.isfinite(result.score)
