"""Puts the list of all configuration keys of a task, as the command prints it, into a page."""

import re

from keras_attention_command import quiet

PLACE = re.compile(r"\{\{ configuration (\S+) \}\}")


def on_page_markdown(markdown: str, **_) -> str:
    """Replace `{{ configuration TASK }}` by what `keras-attention train TASK --help-all` lists."""
    return PLACE.sub(lambda match: f"```text\n{_keys(match[1])}\n```", markdown)


def _keys(task: str) -> str:
    quiet()
    from keras_attention.applications.command.cli import load_task
    from keras_attention.applications.schema.help import config_help

    return config_help(load_task(task).config_class)
