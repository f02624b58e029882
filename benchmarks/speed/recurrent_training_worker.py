"""A process of `recurrent_training`, `SIDE MODEL`: one side takes steps.

It imports nothing of this repository but in our own side's process.
"""

import json
import os
import sys
import time

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


if __name__ == "__main__":
    serve(*sys.argv[1:])
