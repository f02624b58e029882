"""`python -m benchmarks.recurrent_training --python PYTHON`: our recurrent models and joeynmt's.

joeynmt (Kreutzer et al. 2019) wants a protobuf that TensorFlow does not run with, so its steps run
in a Python of their own: `python -m venv joey; joey/bin/pip install joeynmt importlib_metadata`.

Each side trains its own model of the same sizes by Adam, without dropout: a GRU in both directions
with Bahdanau's attention, and two LSTM layers with Luong's, both with input feeding. The models
differ in details (readouts, first states, the directions of the second's encoder), so time is all
that is compared. The sides take turns.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WORDS, UNITS, BATCH, LENGTH = 6000, 256, 64, 25
MODELS = ("rnnsearch", "luong")
FIRST_WORD, START, PAD = 4, 2, {"ours": 0, "joeynmt": 1}


def batch(side: str) -> dict[str, np.ndarray]:
    """Return `source`, `target` and `labels`; sources are padded, the longest first."""
    rng = np.random.default_rng(5)
    source, labels = rng.integers(FIRST_WORD, WORDS, (2, BATCH, LENGTH))
    lengths = np.sort(rng.integers(LENGTH // 2, LENGTH + 1, BATCH))[::-1].copy()
    source[np.arange(LENGTH) >= lengths[:, None]] = PAD[side]
    target = np.concatenate([np.full((BATCH, 1), START), labels[:, :-1]], axis=1)
    return {"source": source, "target": target, "labels": labels, "lengths": lengths}


def our_step(name: str):
    """Return a function of one step, and how many weights it trains."""
    import keras
    import tensorflow as tf

    from keras_attention.applications.translation import Luong, RNNSearch
    from keras_attention.applications.translation.networks.base import WordCrossentropy

    kind, more = (RNNSearch, {}) if name == "rnnsearch" else (Luong, {"layers": 2})
    model = kind(WORDS, WORDS, embedding_size=UNITS, units=UNITS, **more)
    loss, optimizer = WordCrossentropy(model), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    arrays = {key: tf.constant(value, "int32") for key, value in batch("ours").items()}

    @tf.function
    def step(source, target, labels):
        with tf.GradientTape() as tape:
            features = model.features({"source": source, "target": target}, training=True)
            value = loss(labels, features)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(value, [v.value for v in variables]), variables)
        return value

    names = ("source", "target", "labels")
    return lambda: float(step(*(arrays[name] for name in names))), model.count_params()


def joeys_step(name: str):
    """The same of joeynmt, as its `TrainManager` takes a step."""
    from types import SimpleNamespace

    import torch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    symbols = {"unk": 0, "pad": PAD["joeynmt"], "bos": START, "eos": 3, "sep": None}
    special = SimpleNamespace(lang_tags=[], **{f"{key}_id": x for key, x in symbols.items()})
    for key in symbols:
        setattr(special, f"{key}_token", None if key == "sep" else f"<{key}>")
    words = Vocabulary([str(word) for word in range(WORDS - FIRST_WORD)], special)
    kind = {"rnnsearch": "gru", "luong": "lstm"}[name]
    layers = 1 if name == "rnnsearch" else 2
    common = {"type": "recurrent", "rnn_type": kind, "hidden_size": UNITS, "num_layers": layers}
    common |= {"embeddings": {"embedding_dim": UNITS}, "dropout": 0.0}
    attention = "bahdanau" if name == "rnnsearch" else "luong"
    config = {
        # joeynmt 2.3.0 fails with an encoder of one direction: two of half the width stand for it.
        "encoder": {**common, "bidirectional": True, "hidden_size": UNITS // layers},
        "decoder": {**common, "attention": attention, "input_feeding": True},
    }
    model = build_model(config, words, words)
    model.loss_function = ("crossentropy", 0.0)
    optimizer = torch.optim.Adam(model.parameters())
    arrays = {key: torch.from_numpy(value) for key, value in batch("joeynmt").items()}
    masks = {key: (arrays[key] != PAD["joeynmt"]).unsqueeze(1) for key in ("source", "labels")}

    def step():
        optimizer.zero_grad()
        total, *_ = model(
            return_type="loss",
            src=arrays["source"],
            src_mask=masks["source"],
            src_length=arrays["lengths"],
            trg_input=arrays["target"],
            trg=arrays["labels"],
            trg_mask=masks["labels"],
        )
        loss = total / arrays["labels"].numel()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, sum(weight.numel() for weight in model.parameters())


def serve(side: str, name: str) -> None:
    """Take steps for as many seconds as each line of the input says; print their times."""
    # joeynmt writes its log to the standard output: answers get the true one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    step, size = (our_step if side == "ours" else joeys_step)(name)
    first = step()
    losses = [step() for _ in range(9)]
    assert losses[-1] < first, "it does not learn"
    print(json.dumps(size), file=answers, flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while time.perf_counter() < end:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), file=answers, flush=True)


def measure(name: str, pythons: dict[str, str], rounds: int, seconds: float) -> list[str]:
    """Return the row of a model."""
    children = {
        side: subprocess.Popen(
            [python, *(["-m", "benchmarks.recurrent_training"] if side == "ours" else [__file__])]
            + ["--side", side, "--only", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for side, python in pythons.items()
    }

    def answer(side):
        line = children[side].stdout.readline()
        if not line:
            raise SystemExit(f"error: {side} ended with status {children[side].wait()}")
        return json.loads(line)

    sizes = {side: answer(side) for side in children}
    found: dict = {side: [] for side in children}
    for _ in range(rounds):
        for side, child in children.items():
            print(seconds, file=child.stdin, flush=True)
            found[side].append(1e3 * np.median(answer(side)))
    for child in children.values():
        child.stdin.close()
        child.wait()
    ratios = np.divide(found["joeynmt"], found["ours"])
    row = [name]
    for side in pythons:
        row += [f"{sizes[side]:,}", f"{np.median(found[side]):.1f}"]
    return [*row, f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"]


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recurrent_training")
    parser.add_argument("--python", type=Path, help="a Python that has joeynmt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--side", choices=list(PAD), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return serve(options.side, options.only)
    if options.python is None or not options.python.is_file():
        parser.error(f"--python must be a Python that has joeynmt. Received: {options.python}")
    from benchmarks.machine import Watch
    from benchmarks.report import markdown

    rows = [["model", "our weights", "ms", "joeynmt's weights", "ms", "times as fast"]]
    pythons = {"ours": sys.executable, "joeynmt": str(options.python)}
    watch = Watch()
    for name in [options.only] if options.only else MODELS:
        rows.append(measure(name, pythons, options.rounds, options.seconds))
    print(markdown(rows))
    print(f"\nother programs used {watch.share_of_others():.0%} of the cores")


if __name__ == "__main__":
    main()
