"""The demo: dates in many written forms to ISO, from training to a SavedModel read back."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

from keras_attention.paths import output_path

from ..base.train import train_task
from ..data.corpus import Corpus
from ..errors import UserError, clock, say
from ..schema.reading import load_config
from ..store.files import refuse_existing_output
from .config import TranslationConfig
from .data import load_corpus
from .task import Translator

SHOWN = 8
EXPECTED = 98.0
"""The percentage of unseen dates that must come out exactly."""
DEFAULT_OUTPUT = Path("runs/demo")

READ_BACK = """
import json, sys
import tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
lines = json.load(sys.stdin)
print(json.dumps([text.decode() for text in serve(text=tf.constant(lines))["text"].numpy()]))
"""

WRITTEN = """
Everything is in {output}:
  {run}  the run: config.yaml, weights, checkpoints, metrics.jsonl
  {picture}  what the model attends to in "{line}"
  {exported}  strings in, strings out, for tensorflow and tensorflow_text
  (tensorboard --logdir {run} shows the training)

Next:
  echo "the 3rd of May, 1984" | keras-attention predict {run} --n-best 3
  keras-attention evaluate {run}
  keras-attention visualize {run} --input "4 juin 1999" --output june.png
On your own text, two files parallel by line (or a TSV, with --data.train and --data.dev):
  keras-attention train translation --output runs/mine \\
      --data.train_source train.en --data.train_target train.de \\
      --data.dev_source dev.en --data.dev_target dev.de
  keras-attention train translation --help lists every setting
"""


class WorseThanExpected(ValueError):
    """The demo ran to its end, and its translations are not what they should be: exit status 1."""

    exit_status = 1


def run_demo(
    output: Path | str | None = None, overrides: list[str] = (), expected: float = EXPECTED
) -> float:
    """Train on dates, show translations, draw, export, and read the export back.

    `output` is a new folder; where not given, `runs/demo` or the next free `runs/demo-2`;
    `overrides` are `--section.key=value` on top of the defaults for dates. Return the percentage of
    unseen dates that are translated exactly; below `expected`, raise `WorseThanExpected`, when all
    that the demo writes is there.
    """
    begin = time.monotonic()
    output = _free_name() if output is None else output_path(output)
    refuse_existing_output(output)
    run, picture, exported = (output / name for name in ("run", "alignment.png", "saved_model"))
    say(f"Training on dates in many written forms into {run}")
    given = ["--data.dataset=dates", *overrides]
    config = load_config(TranslationConfig, [], given)
    train_task(Translator, config, run)

    translator = Translator.from_preset(run)
    corpus = load_corpus(config.data, "test")
    exact = _show(translator, corpus)
    longest = max(corpus["source"][:SHOWN], key=len)
    translator.draw(longest, picture)
    translator.export(exported)
    _read_back(exported, translator, corpus["source"][:SHOWN])
    say(WRITTEN.format(output=output, run=run, picture=picture, exported=exported, line=longest))
    say(f"The demo took {clock(time.monotonic() - begin)}.")
    if exact < expected:
        raise WorseThanExpected(
            f"the demo failed: {exact:.1f} % of unseen dates came out exactly, where at least "
            f"{expected:g} % should; the figures of its training are in {run / 'metrics.jsonl'}."
        )
    return exact


def _free_name() -> Path:
    more = (Path(f"{DEFAULT_OUTPUT}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([DEFAULT_OUTPUT], more) if not path.exists())


def _show(translator: Translator, corpus: Corpus) -> float:
    results = translator.translate(corpus["source"])
    right = [
        result.text == wanted for result, wanted in zip(results, corpus["target"], strict=True)
    ]
    exact = 100 * sum(right) / len(right)
    say()
    width = max(map(len, corpus["source"][:SHOWN]))
    for source, result, good in list(zip(corpus["source"], results, right, strict=True))[:SHOWN]:
        print(f"{source:<{width}}  ->  {result.text}{'' if good else '  (wrong)'}")
    print(f"exact matches on {len(right):,} unseen dates: {exact:.1f} %", flush=True)
    return exact


def _read_back(exported: Path, translator: Translator, lines: list[str]) -> None:
    """Serve the export in a fresh process that has TensorFlow alone, and compare."""
    done = subprocess.run(
        [sys.executable, "-c", READ_BACK, str(exported)],
        input=json.dumps(lines),
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        reason = [f"exit status {done.returncode}", *done.stderr.splitlines()][-1]
        raise UserError(f"the SavedModel could not be read back: {reason}")
    expected = [result.text for result in translator.translate(lines)]
    if json.loads(done.stdout) != expected:
        raise UserError(f"{exported} gives other translations than the run it was made from.")
    say(f"\nA fresh process with TensorFlow alone read {exported} back: the same translations.")
