"""Every page of the built site in a real browser, as wide as a desktop and as narrow as a phone."""

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

from playwright.sync_api import TimeoutError, sync_playwright

SITE = Path(__file__).resolve().parents[2] / "site"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium is installed: apt-get install chromium"
    ),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no site is built: make docs"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
# The list of the faults that a page shows, each a sentence.
FIND_FAULTS = """
() => {
  const content = document.querySelector('.md-content__inner');
  if (!content) return ['The page has no content.'];
  const name = element => {
    const classes = [...element.classList].map(name => '.' + name).join('');
    const text = element.textContent.trim().slice(0, 40);
    return element.tagName.toLowerCase() + classes + ' "' + text + '"';
  };
  const shown = element => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(element).visibility !== 'hidden';
  };
  const folded = element => element.closest('details:not([open])');
  const scrolls = element => {
    for (let each = element; each && each !== content; each = each.parentElement) {
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(each).overflowX)) return true;
    }
    return false;
  };
  const faults = [];
  const add = (element, fault) => faults.push(name(element) + ': ' + fault);

  const page = document.scrollingElement;
  if (page.scrollWidth > page.clientWidth + 1) {
    faults.push(`The page is ${page.scrollWidth} px wide in a window of ${page.clientWidth}.`);
  }
  // On a phone the theme draws code from one edge of the screen to the other.
  const narrow = page.clientWidth < 720;
  const column = narrow ? page.clientWidth : content.getBoundingClientRect().right;
  const edge = column + 4;  // the padding of inline code hangs over
  for (const element of content.querySelectorAll('*')) {
    if (!shown(element) || folded(element)) continue;
    if (element.getBoundingClientRect().right > edge && !scrolls(element)) {
      add(element, 'it runs out of the column of text');
    }
  }
  for (const heading of content.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const next = heading.nextElementSibling;
    if (!next || !shown(next) || folded(heading)) continue;
    if (next.getBoundingClientRect().top < heading.getBoundingClientRect().bottom - 4) {
      add(heading, 'the text stands beside its heading: ' + name(next));
    }
  }
  for (const entry of content.querySelectorAll('.doc-object, .doc-contents')) {
    if (getComputedStyle(entry).display !== 'block') {
      add(entry, 'an entry of the reference is laid out in columns');
    }
  }
  for (const image of content.querySelectorAll('img')) {
    if (image.complete && !image.naturalWidth) add(image, 'broken image ' + image.src);
  }
  const boxes = 'pre, table, figure, svg, .admonition, div.cards > div';
  for (const box of content.querySelectorAll(boxes)) {
    if (folded(box)) continue;
    const empty = !box.textContent.trim() && !box.querySelector('img, svg, path, rect, video');
    if (empty || !shown(box)) add(box, 'an empty box');
  }
  return faults;
}
"""


def addresses():
    """The pages of the site, but those that are no page of the theme."""
    pages = {str(page.relative_to(SITE)) for page in SITE.rglob("*.html")}
    return sorted(pages - {"404.html", "live/dates.html"})


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module", params=SIZES)
def window(browser, request):
    """One window of each size, in which the pages open one after the other."""
    width, height = SIZES[request.param]
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(20_000)
    yield page
    page.close()


def faults_of(window, address):
    """The faults that a page shows, and the errors of its scripts."""
    errors = []

    def keep(error):
        errors.append(f"An error of JavaScript: {error}")

    window.on("pageerror", keep)
    window.goto(address)
    # Images below the first screen load only when they come near it.
    window.evaluate("() => document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")
    window.wait_for_load_state("load")
    faults = window.evaluate(FIND_FAULTS)
    window.remove_listener("pageerror", keep)
    return faults + errors


@pytest.mark.parametrize(
    ("html", "fault"),
    {
        "wide": ('<p style="width: 3000px">a b c</p>', "px wide in a window"),
        "beside": (
            '<div style="display: grid; grid-template-columns: 9rem 9rem"><h3>a</h3><p>b</p></div>',
            "the text stands beside its heading",
        ),
        "columns": ('<div class="doc doc-contents" style="display: grid">a</div>', "in columns"),
        "image": ('<img src="nowhere.png">', "broken image"),
        "empty": ("<pre></pre>", "an empty box"),
    }.values(),
    ids=["wide", "beside", "columns", "image", "empty"],
)
def test_a_fault_is_found(window, html, fault, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><div class="md-content__inner">{html}</div>', encoding="utf-8")
    assert fault in " ".join(faults_of(window, page.as_uri()))


# Long by their nature: the reference, the lectures, and the lab notes.
LONG = ("api/", "course/", "lab/", "command.html")
MOST_SCREENS = 6


@pytest.mark.parametrize("address", [each for each in addresses() if not each.startswith(LONG)])
def test_page_is_not_long(browser, address):
    width, height = SIZES["desktop"]
    page = browser.new_page(viewport={"width": width, "height": height})
    faults_of(page, (SITE / address).as_uri())
    screens = page.evaluate("() => document.scrollingElement.scrollHeight") / height
    page.close()
    assert screens <= MOST_SCREENS


def test_a_page_leads_to_itself_in_the_other_language(browser):
    page = browser.new_page()
    for address, other in (
        ("layers/bahdanau.html", "layers/bahdanau.zh.html"),
        ("layers/bahdanau.zh.html", "layers/bahdanau.html"),
        ("install.html", "index.zh.html"),
    ):
        page.goto((SITE / address).as_uri())
        found = page.evaluate(
            "() => [...document.querySelectorAll('a.md-select__link')].map(a => a.href)"
        )
        assert (SITE / other).as_uri() in found
        tabs = page.locator(".md-tabs__item").all_text_contents()
        assert any("Tasks" in each for each in tabs) != address.endswith(".zh.html")
    page.close()


@pytest.mark.parametrize("address", addresses())
def test_page_has_no_visible_fault(window, address):
    assert not faults_of(window, (SITE / address).as_uri())


@pytest.fixture(scope="module")
def server():
    """The address of the site on a server of this process: the search needs one."""
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.mark.parametrize(
    ("words", "pages"),
    [("learning rate", ["command.html"]), ("beam size", ["decoding.html", "command.html"])],
)
def test_the_search_ranks_the_page_that_explains_first(browser, server, words, pages):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{server}/install.html")
    field = page.locator(".md-search__input").first
    field.click()
    first = page.locator(".md-search-result__link").first
    # The search listens to keys, and only from when its scripts have started.
    for _ in range(10):
        field.fill("")
        field.press_sequentially(words)
        try:
            first.wait_for(timeout=10_000)
            break
        except TimeoutError:
            continue
    assert first.get_attribute("href").split("?")[0].rsplit("/", 1)[1].split("#")[0] in pages
    page.close()
