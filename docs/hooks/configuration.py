"""Puts the list of all configuration keys, as the command prints it, into a page."""

import os

PLACE = "{{ configuration }}"


def on_page_markdown(markdown: str, **_) -> str:
    """Replace the mark by what `keras-attention train translation --help` lists."""
    if PLACE not in markdown:
        return markdown
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from keras_attention.applications.common.config_help import config_help
    from keras_attention.applications.translation.config import PRESETS, TranslationConfig

    return markdown.replace(PLACE, f"```text\n{config_help(TranslationConfig, PRESETS)}\n```")
