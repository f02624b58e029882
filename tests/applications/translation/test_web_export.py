"""`export --format web`: the page in a real browser computes what Python does."""

import functools
import itertools
import json
import random
import shutil

import keras
import numpy as np
import pytest

from keras_attention.applications.data.made import dates
from keras_attention.applications.errors import UserError
from keras_attention.applications.text import SentencePieceTokenizer, WordTokenizer
from keras_attention.applications.translation import RNNSearch, Transformer, Translator
from keras_attention.applications.translation.web_export import PAGE, model_script
from keras_attention.decoding import SearchOptions
from keras_attention.layers import LuongAttention
from tests.applications.commands import call_command
from tests.applications.translation_runs import (
    SOURCE_LINES,
    make_preprocessor,
    make_translator,
    randomize_transformer,
)

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
in_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium is installed: apt-get install chromium"
)
TYPED = [
    "den 3. Mai 1984",
    "4 juin 1999",
    "",
    "  ",
    "5月３日 1984 ﬁ",
    "zz\tq é e\u0301 ✓ 日本語",
    "İ",
]
TRANSLATE = """
([lines, changes]) => lines.map(line => translator.translate(line, changes)).map(each => ({
  text: each.text, tokens: each.tokens, sourceTokens: each.sourceTokens, alignment: each.alignment,
  tokenLogProbabilities: each.tokenLogProbabilities, unknown: each.unknown,
}))
"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def page(browser):
    """A page with the script of the network, and no model."""
    opened = browser.new_page()
    opened.add_script_tag(content=(PAGE / "network.js").read_text(encoding="utf-8"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def preset():
    return Translator.from_preset("dates")


@pytest.fixture(scope="module")
def exported(preset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "dates"
    preset.export(folder, format="web", example=TYPED[0])
    return folder


@pytest.fixture
def live(browser, exported):
    """The exported page, opened from the disk, whose errors and requests are kept."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.faults, opened.requests_made = [], []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("request", lambda request: opened.requests_made.append(request.url))
    opened.goto((exported / "index.html").as_uri())
    opened.locator(".lt-table").wait_for(timeout=20_000)
    yield opened
    assert not opened.faults
    opened.close()


def put(page, task):
    page.add_script_tag(content=model_script(task))
    page.evaluate("self.translator = new kerasAttention.Translator(kerasAttentionModels.pop()), 0")


def assert_equal(found, expected, atol=1e-5):
    """Compare translations of the browser with those of Python."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["sourceTokens"] == theirs.source_tokens
        assert [n for n, each in enumerate(ours["unknown"]) if each] == list(theirs.unknown)
        assert (ours["text"], ours["tokens"]) == (theirs.text, theirs.tokens)
        if theirs.source_tokens:
            np.testing.assert_allclose(
                np.reshape(ours["alignment"], np.shape(theirs.alignment)),
                theirs.alignment,
                atol=atol,
            )
            np.testing.assert_allclose(
                ours["tokenLogProbabilities"], theirs.token_log_probabilities, atol=atol
            )


# ---- The numbers.


@in_browser
def test_dates_are_python_s_to_five_places(page, preset, traced_nowhere):
    put(page, preset)
    lines = [*dates.generate("test")[0][:30], *TYPED]
    found = page.evaluate(TRANSLATE, [lines, {}])
    assert_equal(found, preset.translate(lines, beam_size=1))
    assert len({each["text"] for each in found}) > 25


def changed(task, line, temperature, masked):
    """Return the words and the weights that Python's own layers give, one step at a time."""
    network = task.backbone
    ids = np.array(task.preprocessor.source_tokenizer.encode([line]))
    encode = network.encode

    def encode_masked(source, training=False):
        annotations, mask, *rest = encode(source, training)
        hidden = np.zeros(mask.shape, bool)
        hidden[0, : len(masked)] = masked
        return annotations, keras.ops.logical_and(mask, ~hidden), *rest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "encode", encode_masked)
        kept = []
        for weight in network.weights:
            scores = "attention/score_vector", "cross_attention/query"
            if any(name in weight.path for name in scores):
                kept.append((weight, weight.numpy()))
                weight.assign(weight.numpy() / temperature)
        state, token, rows = network.start(ids, max_length=12), 2, []
        for index in range(3):
            logits, state = network.step(np.array([token]), state, index)
            logits = keras.ops.convert_to_numpy(logits)[0].astype("float64")
            logits[[0, 2]] = -np.inf
            logits -= np.log(np.exp(logits).sum())
            token = int(logits.argmax())
            weights = keras.ops.convert_to_numpy(state["attention_scores"])[0]
            rows.append((logits[token], *weights))
            if token == 3:
                break
        for weight, value in kept:
            weight.assign(value)
    return np.array(rows)


@in_browser
@pytest.mark.parametrize("name", ["dates", "transformer"])
def test_temperature_and_mask_are_those_of_the_layers(page, preset, name, traced_nowhere):
    task, line = preset, "4 juin 1999"
    if name == "transformer":
        task, line = make_translator("words", architecture="transformer"), SOURCE_LINES[0]
    put(page, task)
    length = len(task.preprocessor.source_tokenizer.encode([line])[0])
    some = [n % 3 == 1 for n in range(length)]
    for temperature, masked in ((2.5, some), (0.3, []), (1.0, [True] * length)):
        changes = {"temperature": temperature, "masked": masked}
        (found,) = page.evaluate(TRANSLATE, [[line], changes])
        expected = changed(task, line, temperature, masked)
        given = found["tokenLogProbabilities"][: len(expected)]
        np.testing.assert_allclose(given, expected[:, 0], atol=1e-4)
        rows = found["alignment"][: len(expected)]
        np.testing.assert_allclose(rows, expected[: len(rows), 1:], atol=1e-5)
        hidden = np.array(rows)[:, : len(masked)][:, masked]
        assert np.all(hidden == 0)


NETWORKS = {
    "rnnsearch": {"architecture": "rnnsearch"},
    "transformer": {"architecture": "transformer", "activation": "gelu"},
    "fast": {
        "architecture": "transformer",
        "autoregression": "ssru",
        "norm": "pre",
        "activation": "swiglu",
        "decoder_layers": 1,
    },
}


@in_browser
@pytest.mark.parametrize(
    ("name", "kind"), list(zip(NETWORKS, ("sentencepiece", "words", "words"), strict=True))
)
def test_networks_and_rules_of_the_search(page, name, kind, traced_nowhere):
    task = make_translator(kind, **NETWORKS[name])
    task.search = SearchOptions(
        max_length=11, max_length_ratio=0.5, no_repeat_ngram=2, min_length=3
    )
    if kind == "words":
        task.preprocessor.replace_unknown = True
        task.dictionary = {"zebra": "streifen"}
    put(page, task)
    lines = [*SOURCE_LINES, "a zebra", "it zebra it", "日本語"]
    found = page.evaluate(TRANSLATE, [lines, {}])
    # The random weights are large, and so is the rounding of Python's 32 bits.
    assert_equal(found, task.translate(lines, beam_size=1), atol=1e-4)
    assert len({each["text"] for each in found}) > 2


@in_browser
def test_networks_of_marian_and_weights_of_eight_bits(page, traced_nowhere):
    """Marian's positions, end token and shared embedding; matrices over a scale keep their bits."""
    task = translator_of(
        Transformer,
        layers=2,
        decoder_layers=1,
        feed_forward_size=13,
        heads=3,
        attention_head=1,
        sinusoids={"layout": "halves", "max_wavelength": 77.0},
        source_end=True,
        layer_norm_epsilon=1e-6,
    )
    network = task.backbone
    randomize_transformer(network)
    rng = np.random.default_rng(8)
    for weight in network.weights:
        if len(weight.shape) > 1:
            scale = np.float32(40.7)
            weight.assign(rng.integers(-127, 128, weight.shape).astype("float32") / scale)
    task.search = SearchOptions(beam_size=1, max_length=9)
    described = json.loads(model_script(task).partition("push(")[2].removesuffix(");\n"))
    tensors = described["tensors"]
    assert all(("scale" in each) == (len(each["shape"]) > 1) for each in tensors.values())
    assert tensors["words"] == tensors["target"]  # one variable is written once
    put(page, task)
    found = page.evaluate(TRANSLATE, [SOURCE_LINES, {}])
    assert_equal(found, task.translate(SOURCE_LINES), atol=1e-4)


# ---- The text.

LETTERS = " \t\u3000\u2581aabbcdeeé\u0301ＡＢ①ﬁ日本한글ß.,-'1２<s>İσΣ￭_\u200b\u00ad🙂"


def texts(count):
    random.seed(5)
    return ["".join(random.choices(LETTERS, k=random.randrange(24))) for _ in range(count)]


@functools.cache
def trained(**options):
    lines = [*SOURCE_LINES, "ab éa ＡＢ ce ß 日本 12.", "deed bead cab σ Σ"] * 3
    return SentencePieceTokenizer.train(lines, vocabulary_size=54, **options)


TOKENIZERS = {
    "unigram": lambda: trained(),
    "bpe, lower case": lambda: trained(model_type="bpe", lowercase=True),
    "own ids and tags": lambda: SentencePieceTokenizer(
        trained()._content(), [">>fra<<", "x", *trained().vocabulary[:3:-2]]
    ),
    "words, lower case": lambda: WordTokenizer.train(
        [*texts(20), *SOURCE_LINES], 60, lowercase=True
    ),
    "whitespace": lambda: WordTokenizer.train(texts(20), 60, split="whitespace"),
}


@in_browser
@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_is_cut_and_joined_as_in_python(page, name):
    tokenizer = TOKENIZERS[name]()
    lines = [*SOURCE_LINES, *texts(300), ">>fra<< a man", "a >>fra<<", ""]
    described = tokenizer.in_web()
    rng = np.random.default_rng(6)
    rows = rng.integers(4, tokenizer.vocabulary_size, (60, 7)).tolist()
    rows += [[1, *row[:3], 1] for row in rows[:9]]
    # The tokenizer of a translator that needs nothing else.
    script = """
    ([described, lines, rows]) => {
      const tokenizer = kerasAttention.tokenizerOf(described);
      const cut = lines.map(line => tokenizer.encode(line));
      return [cut.map(each => each.ids), cut.map(each => each.tokens),
        rows.map(row => tokenizer.decode(row)), cut.map(each => tokenizer.join(each.tokens))];
    }
    """
    ids, tokens, decoded, joined = page.evaluate(script, [described, lines, rows])
    written = [tokenizer.tokens(line) for line in lines]
    for line, ours, theirs in zip(lines, tokens, written, strict=True):
        assert ours == theirs, repr(line)
    assert ids == tokenizer.encode(lines)
    assert decoded == tokenizer.decode(rows)
    assert joined == [tokenizer.join(each) for each in written]


# ---- What is refused.


def translator_of(network, **options):
    preprocessor = make_preprocessor("words")
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    return Translator(network(*sizes, embedding_size=6, **options), preprocessor)


def own_network(**options):
    return translator_of(RNNSearch, units=6, **options)


REFUSED = {
    "Luong": lambda: make_translator("words", architecture="luong"),
    "RNNEncDec": lambda: make_translator("words", architecture="rnnencdec"),
    "LuongAttention": lambda: own_network(attention=LuongAttention("general")),
    "cell LSTMCell": lambda: own_network(cell=keras.layers.LSTMCell(6)),
    "cell GRUCell": lambda: own_network(cell=keras.layers.GRUCell(6)),  # resets after the product
    "encoder Bidirectional": lambda: own_network(
        encoder=keras.layers.Bidirectional(keras.layers.GRU(3, return_sequences=True))
    ),
    "rotary positions": lambda: make_translator(
        "words", architecture="transformer", positions="rotary"
    ),
    "the activation tanh": lambda: translator_of(
        Transformer, layers=1, feed_forward_size=8, heads=2, activation="tanh"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_networks_that_the_page_cannot_run_are_refused(name, tmp_path):
    task = REFUSED[name]()
    message = f"runs RNNSearch with .* Received: .*{name}.*; --format saved_model exports it"
    with pytest.raises(UserError, match=message):
        task.export(tmp_path / "web", format="web")
    assert not (tmp_path / "web").exists()


def test_weights_and_pieces_that_the_page_does_not_know_are_refused(tmp_path):
    task = make_translator("words", architecture="transformer")
    task.backbone.encoders[0].feed_forward.enable_lora(2)
    with pytest.raises(UserError, match=r"plain weights.*lora.*; --format saved_model"):
        task.export(tmp_path / "web", format="web")

    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(trained()._content())
    proto.pieces[-1].type = proto.SentencePiece.USER_DEFINED
    pieces = SentencePieceTokenizer(proto.SerializeToString())
    with pytest.raises(ValueError, match=r"normal, unknown and control.*Received:.*user_defined"):
        pieces.in_web()
    with pytest.raises(ValueError, match="belong to a format that holds one"):
        task.export(tmp_path / "web", format="web", beam_size=2)


def test_the_command_writes_the_page(tmp_path, capsys, exported):
    folder = tmp_path / "page"
    done = call_command(capsys, "export", "dates", "--format", "web", "--output", folder)
    assert (done.status, done.err) == (0, "") or done.status == 0
    names = {each.name for each in folder.iterdir()}
    assert names == {"index.html", "model.js", "network.js", "page.css", "page.js"}
    for name in names:  # and always the same one
        assert (folder / name).read_bytes() == (exported / name).read_bytes()
    again = call_command(capsys, "export", "dates", "--format", "web", "--output", folder)
    assert again.status == 2 and len(again.err.strip().splitlines()) == 1
    assert '"den 3. Mai 1984"' in (folder / "model.js").read_text(encoding="utf-8")


# ---- What a person does.


@in_browser
def test_a_person_types_masks_heats_and_plays(live):
    output, cells = live.locator(".lt-output"), live.locator(".lt-table td.lt-masked")
    assert all(each.startswith(("file:", "data:")) for each in live.requests_made)
    assert output.text_content() == "1984-05-03"

    live.locator("textarea").fill("4 juin 1999")
    assert output.text_content() == "1999-06-04"
    heads = live.locator(".lt-table thead button")
    assert heads.all_text_contents() == ["4", "juin", "1", "9", "9", "9"]
    assert live.locator(".lt-table tbody button").all_text_contents() == list("1999-06-04")

    heads.nth(1).click()  # the month is hidden: another one is written
    assert output.text_content()[:4] == "1999" and output.text_content()[5:7] != "06"
    assert cells.count() == 10 and heads.nth(1).get_attribute("aria-pressed") == "true"
    live.get_by_role("button", name="Reset").click()
    assert output.text_content() == "1999-06-04" and cells.count() == 0

    def largest():
        return live.evaluate(
            "Math.max(...document.querySelector('.live-translator').translatorPage"
            ".result.alignment.flat())"
        )

    before = largest()
    live.locator("input[type=range]").fill("1")
    assert live.locator(".lt-number").text_content() == "10.00" and largest() < before
    live.get_by_role("button", name="Reset").click()

    live.locator(".lt-table tbody button", has_text="6").click()
    assert "juin" in live.locator(".lt-said").nth(1).text_content()
    lit = live.locator(".lt-equation li.lt-lit")
    assert lit.count() == 0
    lines = live.locator(".lt-equation li")
    step = live.get_by_role("button", name="Step")
    for number in itertools.islice(itertools.cycle(range(5)), 11):
        step.click()
        assert lit.count() == 1
        assert "lt-lit" in lines.nth(number).get_attribute("class")
    live.get_by_role("button", name="Play").click()
    live.get_by_role("button", name="Pause").click()
    live.locator("textarea").fill(
        "日本語"
    )  # a character that the model knows, and two that it does not
    assert "本語" in live.locator(".lt-note").first.text_content()
    live.locator("textarea").fill("")
    assert output.text_content() == ""


@in_browser
def test_the_page_speaks_chinese_where_it_is_chinese(live, exported):
    text = (exported / "index.html").read_text(encoding="utf-8")
    other = exported / "zh.html"
    other.write_text(text.replace('lang="en"', 'lang="zh-Hans"'), encoding="utf-8")
    live.goto(other.as_uri())
    live.get_by_role("button", name="播放").wait_for()
    assert live.locator(".lt-output").text_content() == "1984-05-03"
    other.unlink()
