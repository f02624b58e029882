"""Damaged and altered files of others: what their readers make of them, in how much memory."""

import dataclasses
import hashlib
import json
import random
import resource
import tracemalloc
from contextlib import contextmanager

import numpy as np
import yaml

from keras_attention.applications.translation.pretrained.readers import reader_of
from tests.applications.text.random_text import foreign_model
from tests.applications.translation.pretrained import hugging_face_files, marian_files

SLACK = 2 << 20
"""Bytes that an error and its path through the reader may take."""
ROOM = 1 << 30
"""Address space that a reader may take beyond what the process has."""


class Recorder:
    """Takes a network's arguments and weights as `Transformer` does, and keeps their digests."""

    def __init__(self, *sizes, layers=0, decoder_layers=0, **options):
        self.described = {"sizes": list(sizes), "layers": [layers, decoder_layers]} | options
        self.encoders = [_Part(self.described, f"encoder.{i}") for i in range(layers)]
        self.decoders = [_Part(self.described, f"decoder.{i}") for i in range(decoder_layers)]

    def __getattr__(self, name):
        return _Part(self.described, name)


class _Part:
    shape = -1

    def __init__(self, described, path):
        self._described, self._path = described, path

    def __getattr__(self, name):
        return _Part(self._described, f"{self._path}.{name}")

    def assign(self, value):
        content = np.ascontiguousarray(value, "float32").tobytes()
        self._described[self._path] = hashlib.sha256(content).hexdigest()


def description(folder):
    """All that a reader takes from a folder: arguments, weights, search, words, languages."""
    source = reader_of(folder).read(folder)
    network = source.network(None)
    tokenizers = [each.get_config() for each in source.preprocessor.tokenizers]
    return {
        "network": network.described,
        "search": dataclasses.asdict(source.search),
        "words": hashlib.sha256(repr(tokenizers).encode()).hexdigest(),
        "languages": source.languages,
        "licence": source.licence,
    }


@contextmanager
def limited_memory():
    """Let allocations fail that need much more than the process has."""
    with open("/proc/self/statm") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (own + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(folder):
    """What a folder is read as, or the one line that refuses it."""
    reader = reader_of(folder)
    if reader is None:
        return "no reader"
    try:
        return description(folder)
    except ValueError as error:
        text = str(error)
        assert "\n" not in text and 10 < len(text) < 2000 and text[0] not in "'\"", text
        return text


def measured(folder):
    """The same, and the most bytes that Python and NumPy held meanwhile."""
    tracemalloc.start()
    try:
        found = outcome(folder)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def mutations(content, count, seed):
    """Cut, overwritten, swapped, doubled, removed and lengthened contents."""
    draw = random.Random(seed)
    for number in range(count):
        found = bytearray(content)
        # Half of them are near the beginning, where sizes and names are.
        first = draw.randrange(len(content) if number % 2 else min(len(content), 4096))
        size = draw.choice((1, 1, 2, 4, 8, 64))
        kind = draw.randrange(12)
        if kind == 0:
            del found[first:]
        elif kind == 1:
            del found[first : first + size]
        elif kind == 2:
            found[first:first] = found[first : first + size]
        elif kind == 3:
            other = draw.randrange(len(content))
            found[first : first + size] = content[other : other + size]
        elif kind == 4:
            found += draw.randbytes(size)
        elif kind == 5:
            found[first] ^= 1 << draw.randrange(8)
        else:
            new = draw.choice((bytes(size), b"\xff" * size, b"9" * size, draw.randbytes(size)))
            found[first : first + size] = new[: len(content) - first]
        yield bytes(found)


def misspelt(name):
    """A name with another letter in its middle, which nobody else has."""
    middle = len(name) // 2
    return f"{name[:middle]}{'q' if name[middle] != 'q' else 'k'}{name[middle + 1 :]}"


# ---- Folders, each with the file that is damaged.


def _marian(form, name, settings=None, **changes):
    def write(folder):
        marian_files.write_folder(folder, form, settings=settings, **changes)
        return folder / name

    return write


def _marian_list(folder):
    marian_files.write_folder(folder, "npz", **marian_files.SELF)
    (folder / "vocab.spm").unlink()
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(foreign_model())
    words = ["</s>", "<unk>", *hugging_face_files.vocabulary()[3:-1]]
    text = yaml.safe_dump({word: place for place, word in enumerate(words)}, allow_unicode=True)
    (folder / "opus.vocab.yml").write_text(text)
    return folder / "opus.vocab.yml"


def _hugging_face(name, form="safetensors", changes=()):
    def write(folder):
        hugging_face_files.write_folder(folder, changes, form)
        generation = {"num_beams": 4, "length_penalty": 1.0, "max_length": 512}
        (folder / "generation_config.json").write_text(json.dumps(generation))
        return folder / name

    return write


def _ctranslate2(name):
    def write(folder):
        from keras_attention.applications.translation import Translator
        from keras_attention.applications.translation.engines.ctranslate2_export import (
            _specification,
        )

        theirs = folder.with_name(f"{folder.name}-theirs")
        hugging_face_files.write_folder(theirs)
        specification = _specification(Translator.from_preset(theirs))
        specification.validate()
        specification.optimize("int8")
        (folder / "model").mkdir(parents=True)
        specification.save(str(folder / "model"))
        (folder / "sentencepiece.model").write_bytes(foreign_model())
        return folder / name

    return write


SETTINGS = {"models": ["model.bin"], "beam-size": 4, "normalize": 0.5, "max-length-factor": 2.5}
SETTINGS |= {"vocabs": ["vocab.spm", "vocab.spm"], "alignment": "soft", "relative-paths": True}
FILES = {
    "marian int8": _marian("int8", "model.bin"),
    "marian float32": _marian("bin", "model.bin", **marian_files.PRE),
    "marian npz": _marian("npz", "model.npz", **marian_files.SELF),
    "decoder.yml": _marian("bin", "decoder.yml", SETTINGS),
    "vocab.spm": _marian("bin", "vocab.spm"),
    "vocab.yml": _marian_list,
    "safetensors": _hugging_face("model.safetensors"),
    "config.json": _hugging_face("config.json"),
    "generation_config.json": _hugging_face("generation_config.json"),
    "vocab.json": _hugging_face("vocab.json"),
    "target_vocab.json": _hugging_face("target_vocab.json", changes=hugging_face_files.SEPARATE),
    "source.spm": _hugging_face("source.spm"),
    "tf_model.h5": _hugging_face("tf_model.h5", "h5"),
    "pytorch_model.bin": _hugging_face("pytorch_model.bin", "torch"),
    "ctranslate2 model.bin": _ctranslate2("model/model.bin"),
    "ctranslate2 config.json": _ctranslate2("model/config.json"),
    "ctranslate2 vocabulary": _ctranslate2("model/shared_vocabulary.json"),
}
NEEDS = {"pytorch_model.bin": "torch"}
NEEDS |= dict.fromkeys([name for name in FILES if name.startswith("ct")], "ctranslate2")
