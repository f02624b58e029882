"""Makes the live examples of the pages, from the package's own preset, at each build."""

from functools import cache

from keras_attention_command import quiet
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

PLACE = "live/dates.html"
LINK = f"[Open it by itself]({PLACE}){{ target=_blank }}"
EXAMPLES = ("den 3. Mai 1984", "4 juin 1999")

# What `keras-attention export dates --format web --output docs/live/dates` writes.
EXPORTED = "live/dates"
MARK = '<div class="live-translator"'


@cache
def contents() -> dict[str, str]:
    """Return the files: the page with the answers of `dates`, and `dates` for the browser."""
    quiet()
    from keras_attention.applications.show.explanation import page
    from keras_attention.applications.translation import Translator
    from keras_attention.applications.translation.web_export import MODEL, PAGE, model_script

    translator = Translator.from_preset("dates")
    found = {PLACE: page([translator.explain(text, beam_size=3) for text in EXAMPLES])}
    for file in PAGE.iterdir():
        found[f"{EXPORTED}/{file.name}"] = file.read_text(encoding="utf-8")
    found[f"{EXPORTED}/{MODEL}"] = model_script(translator, EXAMPLES[0])
    return found


def on_files(files: Files, config) -> Files:
    """Add the files to the site."""
    for name, content in contents().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Put a link under the frame that shows the page. The file is there only once it is built."""
    frame, end, rest = markdown.partition("</iframe>")
    return f"{frame}{end}\n\n{LINK}{rest}" if PLACE in frame and end else markdown


def on_page_content(content: str, page, **_) -> str:
    """Bring the translator to a page that has a place for it."""
    if MARK not in content:
        return content
    folder = get_relative_url(EXPORTED, page.url)
    return "\n".join(
        [
            f'<link rel="stylesheet" href="{folder}/page.css">',
            content.replace(MARK, f'{MARK} data-model="{folder}/model.js"'),
            f'<script src="{folder}/network.js"></script>',
            f'<script src="{folder}/page.js"></script>',
        ]
    )
