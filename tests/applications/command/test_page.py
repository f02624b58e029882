"""The page in a real browser: what a person does with it, by mouse, by keyboard, on a phone."""

import shutil
import socket
import threading

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytest.importorskip("fastapi", reason="the server is an extra: pip install fastapi uvicorn")

import uvicorn
from playwright.sync_api import sync_playwright

from keras_attention.applications import translation
from keras_attention.applications.command.serve import Limits, make_app
from keras_attention.applications.show.explanation import (
    ExplainedAnswer,
    Explanation,
    Tokens,
    attention_map,
)
from tests.applications.command.test_serve import Stub, raising
from tests.contracts.tasks import TEXTS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium is installed: apt-get install chromium"
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
DATE, ISO = "4 juin 1999", "1999-06-04"
HOSTILE = '<img src=x onerror="window.entered = 1"><script>window.entered = 1</script>'
CONTRAST = 4.5
"""The least contrast of text that WCAG 2 calls AA."""


class Layered(Stub):
    """A task with the maps of a small Transformer, of random weights."""

    asks = {"text": "Sentence"}

    def explain(self, text):
        read, written, rng = Tokens(text.split()), Tokens(["x", "y", "z"]), np.random.default_rng(5)
        sides = {
            "cross-attention": (written, read),
            "encoder self-attention": (read, read),
            "decoder self-attention": (written, Tokens(["<start>", "x", "y"])),
        }
        maps = [
            attention_map(
                name,
                *side,
                rng.dirichlet(np.ones(len(side[1].tokens)), (1, 2, len(side[0].tokens))),
            )
            for name, side in sides.items()
        ]
        return Explanation("stub", {"text": text}, "x y z", [ExplainedAnswer("x y z", -1.0, maps)])


class Shaded(Stub):
    """A task whose answers are two shaded texts, the second in two sentences."""

    def explain(self, text):
        words = Tokens(["good", "but", "long"], ["good", "but long"], [0, 1, 1], "sentences")
        maps = [
            attention_map("text", ["0.9"], ["all", "bad"], [[0.75, 0.25]]),
            attention_map("text", ["0.1"], words, [[0.5, 0.2, 0.3]]),
        ]
        answers = [ExplainedAnswer(str(n), 0.9 - n, [each]) for n, each in enumerate(maps)]
        return Explanation("stub", {"text": text}, "0", answers, ["It was cut."])


@pytest.fixture(scope="module")
def tasks():
    return {
        "dates": translation.Translator.from_preset("dates"),
        "transformer": Layered(),
        "failing": Stub(raising(KeyError(HOSTILE))),
        "shaded": Shaded(),
    }


@pytest.fixture(scope="module")
def address(tasks):
    """The address of a server in this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app(tasks, Limits(characters=90), examples={"dates": {"text": DATE}}),
        log_level="warning",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    page = browser.new_page()
    page.set_default_timeout(20_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.locator("form").wait_for()
    yield page
    page.close()
    assert not problems


def choose(page, *models):
    for box in page.get_by_role("group", name="Models").get_by_role("checkbox").all():
        box.set_checked(box.get_attribute("value") in models)


def show(page, text, label="Sentence"):
    page.get_by_label(label).fill(text)
    page.locator("button.send").click()
    page.get_by_role("status").get_by_text("Done.").wait_for(state="attached")


def numbers(page):
    """The numbers of the table."""
    rows = page.locator("tbody tr").all()
    cells = [row.locator("td").all_text_contents() for row in rows]
    return np.array(cells, "float64")


def test_a_text_is_typed_and_answered(page, tasks):
    assert page.locator("article").count() == 0
    page.get_by_label("Beams").fill("3")
    page.get_by_label("Sentence").fill(DATE)
    page.keyboard.press("Control+Enter")
    page.locator("article").wait_for()
    found = tasks["dates"].explain(DATE, beam_size=3)
    assert page.locator(".answer").inner_text() == found.text == ISO
    answers = page.get_by_role("group", name="Answers")
    assert answers.get_by_role("radio").count() == 3
    for place in (0, 1):
        answers.get_by_role("radio").nth(place).check()
        expected = 100 * found.answers[place].maps[0].matrix(groups=True)[0]
        np.testing.assert_allclose(numbers(page), expected, atol=0.51)


def test_an_example_is_tried_by_one_click(page):
    send, field = page.locator("button.send"), page.get_by_label("Sentence")
    assert send.inner_text() == "Translate"
    assert field.get_attribute("placeholder") == "Type here, then press Translate"
    page.get_by_role("button", name="Try an example").click()
    page.locator("article").wait_for()
    assert field.input_value() == DATE and page.locator(".answer").inner_text() == ISO
    captions = page.locator("article > .caption").all_inner_texts()
    assert captions == ["Output"]
    choose(page, "transformer")
    assert send.inner_text() == "Show"
    assert page.get_by_role("button", name="Try an example").is_hidden()


def test_texts_that_are_empty_or_too_long_are_not_sent(page):
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    send, field, status = (
        page.locator("button.send"),
        page.get_by_label("Sentence"),
        page.get_by_role("status"),
    )
    for text in ("", " \n "):
        field.fill(text)
        send.click()
        assert status.inner_text() == "“Sentence” is empty: type a text first."
        assert status.is_visible() and page.evaluate("document.activeElement.name") == "text"
    field.fill("😀" * 1234)  # one character each, and two units of JavaScript
    assert len(field.input_value()) == 1234  # nothing is cut without a word
    send.click()
    message = "The text has 1,234 characters: at most 90 are taken. Shorten it."
    assert status.inner_text() == message and page.locator("article").count() == 0 and not sent
    show(page, DATE)
    assert page.locator(".answer").inner_text() == ISO


def test_unknown_words_are_marked_and_counted(page, tasks):
    show(page, "日本語")
    note = tasks["dates"].translate("日本語").note
    assert page.locator(".note").inner_text() == note
    marked = page.get_by_role("toolbar", name="Input").locator("button.unknown")
    assert marked.count() == len(tasks["dates"].translate("日本語").unknown)
    assert marked.first.get_attribute("title") == "unknown to the model"
    show(page, DATE)
    assert page.locator(".unknown").count() == 0


def test_a_word_shows_where_it_looked_by_mouse_and_by_keyboard(page, tasks):
    show(page, DATE)
    (first,) = tasks["dates"].explain(DATE).answers[0].maps[:1]
    written, read = (page.get_by_role("toolbar", name=name) for name in ("Output", "Input"))
    weights = first.matrix(groups=True)[0]

    def said(row):
        best = first.columns.groups[int(weights[row].argmax())]
        return f"“{first.rows.groups[row]}” looked at “{best}” "

    written.get_by_role("button").nth(2).hover()
    assert page.locator(".said").inner_text().startswith(said(2))
    written.get_by_role("button").nth(0).click()
    assert page.locator(".said").inner_text().startswith(said(0))
    assert page.locator(".said").get_attribute("aria-live") == "polite"
    shades = [
        float(each.evaluate("node => node.style.getPropertyValue('--weight')"))
        for each in read.get_by_role("button").all()
    ]
    strongest = max(weights[0].max(), 3 * weights[0].mean())
    np.testing.assert_allclose(shades, weights[0] / strongest, atol=0.01)
    page.keyboard.press("ArrowRight")
    assert page.locator(".said").inner_text().startswith(said(1))
    page.keyboard.press("End")
    assert page.locator(".said").inner_text().startswith(said(len(weights) - 1))
    page.keyboard.press("ArrowDown")
    name = first.columns.groups[0]
    assert page.locator(".said").inner_text().startswith(f"“{name}” was looked at by “")
    assert page.evaluate("document.activeElement.textContent") == name
    assert page.locator("th.chosen").inner_text() == name


@pytest.mark.slow
def test_whole_words_in_place_of_pieces(page, tasks):
    show(page, DATE)
    (found,) = tasks["dates"].explain(DATE).answers[0].maps
    for of_words, labels in ((True, found.columns.groups), (False, found.columns.tokens)):
        box = page.get_by_label("Whole words")
        assert of_words == box.is_checked()
        np.testing.assert_allclose(numbers(page), 100 * found.matrix(groups=of_words)[0], atol=0.51)
        assert page.locator("thead th").all_text_contents() == labels
        box.uncheck()
    assert found.columns.groups == ["4", "juin", *"1999"]


@pytest.mark.slow
def test_attention_layer_and_head_are_chosen(page, tasks):
    choose(page, "transformer")
    show(page, TEXTS[1])
    maps = tasks["transformer"].explain(TEXTS[1]).answers[0].maps
    np.testing.assert_allclose(numbers(page), 100 * maps[0].matrix().mean(axis=0), atol=0.51)
    page.get_by_role("radio", name="1").last.check()
    np.testing.assert_allclose(numbers(page), 100 * maps[0].matrix()[1], atol=0.51)
    assert "head 1" in page.locator("caption").inner_text()
    page.keyboard.press("ArrowLeft")  # the controls keep the focus as they are drawn anew
    np.testing.assert_allclose(numbers(page), 100 * maps[0].matrix()[0], atol=0.51)
    page.get_by_label("Attention", exact=True).select_option("decoder self-attention")
    np.testing.assert_allclose(numbers(page), 100 * maps[2].matrix().mean(axis=0), atol=0.51)
    assert page.locator("thead th").first.inner_text() == "<start>"


@pytest.mark.slow
def test_layers_by_a_slider(page, browser, tmp_path):
    weights = np.random.default_rng(5).dirichlet(np.ones(3), size=(5, 1, 2))
    made = attention_map("cross-attention", ["a", "b"], ["c", "d", "e"], weights)
    Explanation("x", {"text": "c d e"}, "a b", [ExplainedAnswer("a b", None, [made])]).save(
        tmp_path / "page.html"
    )
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("form").is_hidden() and page.locator(".input").inner_text() == "c d e"
    np.testing.assert_allclose(numbers(page), 100 * weights[4, 0], atol=0.51)
    slider = page.get_by_label("Layer 4 (0 to 4)")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    np.testing.assert_allclose(numbers(page), 100 * weights[2, 0], atol=0.51)
    assert all(url.startswith(("file:", "data:")) for url in requests)


@pytest.mark.slow
def test_models_side_by_side(page):
    choose(page, "dates", "transformer", "shaded")
    show(page, DATE, "Sentence / Text")
    names = page.locator("article h2").all_inner_texts()
    assert [name.split(" ")[0] for name in names] == ["dates", "transformer", "shaded"]
    assert page.locator(".answer").first.inner_text() == ISO


@pytest.mark.slow
def test_shaded_texts_and_sentences(page):
    choose(page, "shaded")
    show(page, "x", "Text")
    assert page.locator(".note").inner_text() == "It was cut."
    marks = page.get_by_role("group", name="Answers").locator("mark")
    assert marks.all_inner_texts() == ["all", "bad", "good", "but", "long"]
    words = page.get_by_role("toolbar", name="text").get_by_role("button")
    words.nth(1).click()
    assert page.locator(".said").inner_text() == "“bad” 25 %"
    assert page.get_by_role("radio").count() == 2
    page.get_by_role("radio").nth(1).check()
    page.get_by_label("Whole sentences").check()
    assert words.all_inner_texts() == ["good", "but long"]


def test_a_label_is_no_text_and_its_self_attention_can_be_chosen(browser, tmp_path):
    words = Tokens(["not", "bad"])
    maps = [
        attention_map("text", ["text"], words, [[0.25, 0.75]]),
        attention_map("self-attention", words, words, np.full((1, 2, 2, 2), 0.5)),
    ]
    answers = [ExplainedAnswer("praise", 0.9, maps[:1]), ExplainedAnswer("blame", 0.1)]
    for number, first in enumerate((maps[:1], maps)):
        answers[0] = ExplainedAnswer("praise", 0.9, first)
        Explanation("stub", {"text": "not bad"}, "praise", answers).save(
            tmp_path / f"{number}.html"
        )
        page = browser.new_page()
        page.goto((tmp_path / f"{number}.html").as_uri())
        group = page.get_by_role("group", name="Answers")
        assert group.locator("label").all_inner_texts() == ["praise\n0.900", "blame\n0.100"]
        assert page.get_by_role("toolbar", name="text").get_by_role("button").count() == 2
        if number:
            page.get_by_label("Attention").select_option("self-attention")
            assert page.get_by_role("toolbar", name="Looking").get_by_role("button").count() == 2
            assert page.get_by_role("group", name="Heads").get_by_role("radio").count() == 3
        page.close()


def test_what_goes_wrong_is_said(page):
    choose(page, "failing", "dates")
    show(page, DATE, "Sentence / Text")
    alert = page.get_by_role("alert")
    assert "the model failed (KeyError" in alert.inner_text() and HOSTILE in alert.inner_text()
    assert page.locator(".answer").inner_text() == ISO  # the other model's
    choose(page, "dates")
    page.get_by_label("Sentence").fill("1 " * 46)
    page.locator("button.send").click()
    assert "92 characters: at most 90" in page.get_by_role("status").inner_text()
    choose(page)
    page.locator("button.send").click()
    assert page.get_by_role("status").inner_text() == "Choose a model."


def test_a_text_is_never_read_as_html(page):
    choose(page, "shaded")
    show(page, HOSTILE, "Text")
    choose(page, "dates", "failing")
    show(page, HOSTILE, "Sentence / Text")
    assert page.evaluate("window.entered") is None
    assert page.locator("main img").count() == 0


@pytest.mark.slow
def test_two_people_at_once(browser, address):
    pages = [browser.new_context().new_page() for _ in range(2)]
    for page, text in zip(pages, (DATE, "5 juin 1999"), strict=True):
        page.goto(address)
        page.locator("form").wait_for()
        page.get_by_label("Sentence").fill(text)
    for page in pages:
        page.locator("button.send").click()
    for page, answer in zip(pages, (ISO, "1999-06-05"), strict=True):
        page.locator("article").wait_for()
        assert page.locator(".answer").inner_text() == answer
        page.context.close()


COLOURS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const read = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const inks = ["--ink", "--faint", "--wrong", "--accent"].map((name) => read(of(name)));
  const papers = ["--paper", "--raised"].map((name) => read(of(name)));
  return {inks, papers, shade: read(`rgb(${of("--shade")})`),
    button: [read(of("--on-accent")), read(of("--accent"))]};
}"""


def contrast(one, other):
    """The contrast of two colours, by WCAG 2."""

    def luminance(colour):
        parts = np.asarray(colour) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "dark"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(360, "light"), (800, "dark")]),
    ],
)
def test_a_phone_and_the_dark(browser, address, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, device_scale_factor=1
    )
    page = context.new_page()
    page.goto(address)
    page.locator("form").wait_for()
    choose(page, "transformer", "shaded")
    show(page, " ".join(TEXTS[:4]), "Sentence / Text")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for score in page.locator(".score").all():  # in one line
        assert score.evaluate(
            "n => n.offsetHeight <= 1.6 * parseFloat(getComputedStyle(n).fontSize)"
        )
    found = page.evaluate(COLOURS)
    dark = np.mean(found["papers"]) < 128
    assert dark == (scheme == "dark")
    for ink in found["inks"]:
        assert min(contrast(ink, paper) for paper in found["papers"]) >= CONTRAST
    assert contrast(found["inks"][0], found["shade"]) >= CONTRAST
    assert contrast(*found["button"]) >= CONTRAST
    for each in page.locator("input, select, textarea, button, canvas").all():
        named = each.evaluate(
            "node => node.labels?.[0]?.textContent.trim() || node.textContent.trim()"
            " || node.getAttribute('aria-label') || node.getAttribute('aria-hidden')"
        )
        assert named, each.evaluate("node => node.outerHTML")
    context.close()
