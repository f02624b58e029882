"""Damage and malice: bytes, JSON, weights, YAML and texts, and what a verb makes of them.

Each function changes one file in place, as the random numbers that it is given say, and returns
what it did.
"""

import functools
import gzip
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import h5py
import keras
import numpy as np

from keras_attention.applications.store.files import CHECKSUMS, write_checksums
from tests.trial.workers import MOST_LINES, Case, Judged, call, outcome_of, tree, watch


def change_bytes(path: Path, chance: Random) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content) + 1)
    size = min(chance.choice([1, 4, 64, 512]), len(content) // 2)
    left, right, end = content[:at], content[at:], len(content) - size
    ways = {
        "flip": left + bytes([byte ^ 1 << chance.randrange(8) for byte in right[:1]]) + right[1:],
        "cut": left,
        "empty": b"",
        "swap": content[end:] + content[size:end] + content[:size],
        "zeros": left + bytes(len(right[:size])) + right[size:],
        "insert": left + chance.randbytes(max(size, 1)) + right,
    }
    kind = chance.choice(["flip", *ways])
    path.write_bytes(ways[kind])
    return f"{kind} at {at} of {path.name}"


def replace_file(path: Path, chance: Random, watched: Path | None = None) -> str:
    """Put something in place of a file that is none, or leads out to `watched`."""
    ways = {
        "nothing": lambda: None,
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "device": lambda: path.symlink_to("/dev/zero"),
        "endless link": lambda: path.symlink_to(path.name),
        "link out": lambda: path.symlink_to(watched / path.name),
    }
    kind = chance.choice(list(ways)[: None if watched else -1])
    if kind == "link out":
        shutil.copy(path, watched)
    path.unlink()
    ways[kind]()
    return f"{kind} in place of {path.name}"


def plant_links(run: Path, chance: Random, watched: Path) -> str:
    """Put a link that leads out of a run folder where a training writes."""
    names = ["config.yaml", "metrics.jsonl", "model.weights.h5", "FORMAT", CHECKSUMS, "LOCK"]
    names += [f".partial-{name}" for name in names] + ["checkpoints", "tensorboard", "tokenizers"]
    path = run / chance.choice(names)
    if path.exists():
        path.rename(watched / path.name)
    path.symlink_to(watched / path.name)
    return f"{path.name} leads out"


# ---- JSON and weights.

HUGE = (10**5, 10**8, 10**12, 2**63, 10**400, -1, -(10**9))


def _ran() -> None:
    open("ran", "w").close()  # in the current folder, which is watched


def _dangerous(chance: Random) -> Any:
    """Return an object that runs code in a reader that trusts it."""
    call = {"module": "os", "class_name": "function", "config": "system"}
    thread = {"target": "os.system", "args": ["touch ran"]}
    return chance.choice(
        [
            {**call, "registered_name": "function"},
            {**call, "module": "builtins", "config": "eval", "registered_name": "eval"},
            keras.saving.serialize_keras_object(keras.layers.Lambda(lambda x: _ran() or x)),
            {"module": "threading", "class_name": "Thread", "config": thread},
            {"module": "subprocess", "class_name": "Popen", "config": {"args": ["touch", "ran"]}},
            {"class_name": "__lambda__", "config": {"value": "bm8="}},
        ]
    )


def _odd(chance: Random) -> Any:
    nested: Any = functools.reduce(lambda value, _: [value], range(chance.choice([3, 900])), [])
    odd = [None, True, False, -1, 0, 1.5, 1e308, float("inf"), float("nan"), "", "0", [], {}, [[]]]
    odd += ["\ud800", "x" * 100_000, "../../watched/file", "/dev/zero", "\x00", "float64", nested]
    return _dangerous(chance) if chance.random() < 0.25 else chance.choice([*odd, *HUGE])


def change_json(path: Path, chance: Random) -> str:
    """Drop, rename or replace something at any depth."""
    content = json.loads(path.read_text("utf-8"))
    places: list[tuple[Any, Any]] = []

    def note(value):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], (dict, list)):
                note(value[key])

    note(content)
    if not places:
        return change_bytes(path, chance)
    kind = chance.choice(["drop", "rename", "replace", "replace", "replace", "huge", "deep"])
    numbers = [(holder, key) for holder, key in places if type(holder[key]) in (int, float)]
    holder, key = chance.choice(numbers if kind == "huge" and numbers else places)
    if kind == "drop":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[chance.choice(["", "name", "dtype", "units", "x"])] = holder.pop(key)
    else:
        holder[key] = chance.choice(HUGE) if kind == "huge" else _odd(chance)
        holder[key] = "DEEP" if kind == "deep" else holder[key]
    text = json.dumps(content).replace('"DEEP"', "[" * 10**5 + "]" * 10**5)
    path.write_text(text, "utf-8")
    return f"{kind} {key!r} in {path.name}"


def change_weights(path: Path, chance: Random) -> str:
    """Make a file of weights that HDF5 can read, and that is none of this network's."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        name = chance.choice(names)
        old = file[name][()]
        holed = np.array(old, "float32")
        holed.reshape(-1)[chance.randrange(old.size)] = chance.choice([np.nan, np.inf])
        shapes = [(), (0,), (1, 1, 1, 1), (*old.shape, 2)]
        ways = {
            "nan": holed,
            "shape": np.zeros(chance.choice(shapes), "f4"),
            "dtype": old.astype(chance.choice(["f8", "i4", "c8", "bool", "f2"])),
            "text": np.full(old.shape or (1,), b"x"),
            "external": h5py.ExternalLink("/dev/zero", "/x"),
            "link": h5py.SoftLink("/" + name),
            "huge": None,
            "rename": None,
            "more": None,
        }
        kind = chance.choice(list(ways))
        if kind != "more":
            del file[name]
        if kind == "huge":
            file.create_dataset(name, (10**6, 10**4), "f4", chunks=(1000, 1000), compression="gzip")
        else:
            value = ways[kind]
            file[name if value is not None else f"{name}_{kind}"] = old if value is None else value
    return f"{kind} {name} in {path.name}"


def change_checkpoint(path: Path, chance: Random) -> str:
    """Make a checkpoint that is whole, and whose state or arrays are none of this training."""
    with np.load(path) as archive:
        arrays = dict(archive)
    name = "state" if chance.random() < 0.5 else chance.choice(list(arrays))
    old, what = arrays[name], name
    if name == "state":
        text = path.with_suffix(".json")
        text.write_bytes(old.tobytes())
        what = change_json(text, chance)
        arrays[name] = np.frombuffer(text.read_bytes(), np.uint8)
        text.unlink()
    else:
        ways = [np.full(old.shape, np.nan), old[None], old.astype("c8"), np.array(["x"]), None]
        arrays[name] = ways[chance.randrange(len(ways))]
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return f"{what} in {path.name}"


def change_archive(path: Path, chance: Random) -> str:
    """Change what a `.keras` file holds, and make it a whole archive again."""
    unpacked = path.with_name("unpacked")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    inside = chance.choice(sorted(each for each in unpacked.rglob("*") if each.is_file()))
    change = {".json": change_json, ".h5": change_weights}.get(inside.suffix, change_bytes)
    what = change(inside, chance)
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(unpacked.rglob("*")):
            archive.write(each, each.relative_to(unpacked).as_posix())
        if chance.random() < 0.1:
            archive.writestr("../../watched/out", b"x")
    shutil.rmtree(unpacked)
    return what


# ---- Configuration and texts: these return, too, whether the change must be refused.

TOO_LARGE = ("1e400", ".inf", ".nan", 10**12, 10**400)
NO_NUMBER = ("1e400", ".inf", "1:30", '"null"', '"7"', "abc", "true", "1_000", "0x10", "!!int x")
ODD = ("null", "~", "''", "0", "-1", "0.5", "2", "1e3", "2020-01-01", "[1, 2]", "{a: 1}")


def change_yaml(path: Path, chance: Random) -> tuple[str, bool]:
    lines = path.read_text("utf-8").splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r"  \w+: *[^ ]", line)]
    numbers = [n for n in keys if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", lines[n].split(": ")[1])]
    kind = chance.choice(["drop", "double", "rename", "odd", "no number", "huge", "shape", "bytes"])
    at = chance.choice(numbers if kind in ("no number", "huge") else keys)
    name, old = lines[at].strip().split(": ", 1)
    values = {"odd": ODD, "no number": NO_NUMBER, "huge": TOO_LARGE}
    if kind in values:
        new = str(chance.choice(values[kind]))
        lines[at] = f"  {name}: {new}"
    elif kind == "drop":
        del lines[at]
    elif kind == "double":
        lines.insert(at, lines[at])
    elif kind == "rename":
        lines[at] = lines[at].replace(name, f"{name}{chance.choice(['s', '_', 'é'])}")
    elif kind == "shape":
        old = _shape_oddly(lines, chance)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    if kind == "bytes":
        return change_bytes(path, chance), False
    if kind in values:
        return f"{name}: {new[:30]} for {old}", kind != "odd" or new[0] in "[{"
    return f"{kind} {name}: {old}", kind != "drop"


def _shape_oddly(lines: list[str], chance: Random) -> str:
    """Make YAML that is no configuration."""
    bomb = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    depth = chance.choice([10, 1000, 100_000])
    ways = {
        "anchor": ["a: &a 1", *lines],
        "bomb": ["a0: &a0 [x]", *bomb, *lines],
        "deep": ["data:", f"  x: {'[' * depth}{']' * depth}"],
        "braces": ["data:", f"  x: {'{a: ' * depth}{'}' * depth}"],
        "list": [f"- {line.strip()}" for line in lines],
        "large": [*lines, f"# {'x' * (2 << 20)}"],
        "tag": [*lines, "x: !!python/object/apply:os.system ['touch ran']"],
        "tab": ["\t" + line for line in lines],
    }
    kind = chance.choice(list(ways))
    lines[:] = ways[kind]
    return kind


WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
"""Encodings that must be named, as `iconv` knows them, with a mark or without."""


def change_data(path: Path, chance: Random) -> tuple[str, bool, Path]:
    """Change a file of texts, and perhaps its name, which is returned as well."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = chance.randrange(len(lines))
    line, rest = lines[at], (lines[:at], lines[at + 1 :])
    is_json = path.suffix == ".jsonl"
    word = re.search(rb"source.: .(\S+)", line)[1] if is_json else re.findall(rb"\w+", line)[0]
    text = b"".join(lines)

    def with_word(new):
        return b"".join([*rest[0], line.replace(word, new, 1), *rest[1]])

    ways = {
        "encoding": with_word(word + b"\xe9\xff"),
        "nul": with_word(word + b"\x00"),
        "surrogate": with_word(b"\\ud800"),
        "word": with_word(b"x" * 200_000),
        "line": with_word(b"one two " * 50_000),
        "empty": b"",
        "blank": b"".join([*rest[0], b"\n", *rest[1]]),
        "fewer": b"".join(rest[0] + rest[1]),
        "binary": b"\xff" + chance.randbytes(2000),
        "mark": b"\xef\xbb\xbf" + text,
        "two bad": b"".join([*rest[0], b"\xff\n", line, b"\xfe\n", *rest[1]]),
        **{name: text.decode("utf-8").encode(name) for name in WIDE},
        "returns": text.replace(b"\n", b"\r\n"),
    }
    kind = chance.choice([*ways, "no file", "no file", "packed", "packed, cut", "packed bomb"])
    refused = {"surrogate": is_json, "fewer": path.suffix in (".source", ".target")}
    always = ("encoding", "empty", "binary", "two bad", "packed, cut", "packed bomb", *WIDE)
    refused = refused.get(kind, kind in always)
    if kind == "no file":
        return replace_file(path, chance), True, path
    if kind in ways:
        path.write_bytes(ways[kind])
        return f"{kind} in line {at + 1} of {path.name}", refused, path
    path.unlink()
    path = path.with_name(f"{path.name}.gz")
    packed = gzip.compress(bytes(6 << 20), 1) * 100 if "bomb" in kind else gzip.compress(text, 1)
    path.write_bytes(packed[: -chance.randrange(1, 20)] if "cut" in kind else packed)
    return f"{kind} {path.name}", refused, path


def mistyped(word: str, chance: Random) -> str:
    """Return a word with two letters swapped, one left out or one twice; never the word itself."""
    at = chance.randrange(len(word) - 1)
    ways = [
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
    ]
    return chance.choice([each for each in ways if each != word])


# ---- The kinds of mutations.


class Mutations:
    """One method for each kind: changes a copy in `folder`, and judges what a verb does with it."""

    def __init__(self, trial: Any):
        self.trial = trial

    def __call__(self, case: Case, folder: Path) -> Judged:
        chance = Random(str(case))
        for name in ("watched", "cwd"):
            (folder / name).mkdir()
        (folder / "watched" / "file").write_text("Nobody should write here.\n")
        os.chdir(folder / "cwd")
        subject = chance.choice(self.trial.subjects)
        outcome, note = getattr(self, case.kind)(subject, chance, folder)
        return Judged(case, outcome, f"{subject}, {note}", (subject,))

    def bytes(self, subject, chance, folder):
        """Damage: any file of a run or preset, whose checksums stay; results must not change."""
        run, path = self._copy(subject, chance, folder)
        what = change_bytes(path, chance)
        may_differ = path.name == "metrics.jsonl"  # a log, which resuming copies
        return self._use(subject, chance, run, path, folder, what, may_differ)

    def stranger(self, subject, chance, folder):
        """A stranger's run or preset: all checksums are right, and the content is not."""
        run, path = self._copy(subject, chance, folder)
        kind = chance.choice(["content"] * 4 + ["file", "links"])
        if kind == "links":
            what = plant_links(run, chance, folder / "watched")
        elif kind == "file":
            what = replace_file(path, chance, folder / "watched")
        else:
            changes = {".json": change_json, ".h5": change_weights, ".npz": change_checkpoint}
            change = (
                change_json if path.name == "FORMAT" else changes.get(path.suffix, change_bytes)
            )
            what = change(path, chance)
        if path.name != CHECKSUMS and not (run / CHECKSUMS).is_symlink():
            write_checksums(run, but=("FORMAT",))
        return self._use(subject, chance, run, path, folder, what, True)

    def keras_file(self, subject, chance, folder):
        """A `.keras` file, damaged or a stranger's, which Keras itself reads."""
        path = folder / "model.keras"
        shutil.copy(self.trial.run_of(subject, "file.keras"), path)
        is_damaged = chance.random() < 0.4
        what = (change_bytes if is_damaged else change_archive)(path, chance)
        answers = []

        def load():
            try:
                answers.append(self.trial.load_keras(path, subject))
            except Exception as error:  # Keras' own, of any type
                print(type(error).__name__, file=sys.stderr)
                return 2
            return 0

        (done, _), outside = self._watched(folder, None, lambda: (watch(load, folder), None))
        is_same = answers == [self.trial.answers[subject, "keras"]]
        return outside or outcome_of(done, is_same, not is_damaged), f"{what}: {done.err[-300:]}"

    def config(self, subject, chance, folder):
        """A configuration, of a run or for a training."""
        if chance.random() < 0.6:
            path = self.trial.once(subject, folder / "config.yaml")
            what, refused = change_yaml(path, chance)
            return self._train(subject, path, folder, what, refused, None)
        run = shutil.copytree(self.trial.run_of(subject), folder / "run")
        what, refused = change_yaml(run / "config.yaml", chance)
        write_checksums(run, but=("FORMAT",))
        verb = chance.choice(["predict", "evaluate"])
        use = (subject, verb, run, folder / "use")
        return self._judge(subject, verb, folder, run, use, (what, True, refused))

    def data(self, subject, chance, folder):
        """A file of texts, to train by or to use."""
        data = shutil.copytree(self.trial.data, folder / "data")
        trains, verb = chance.random() < 0.3, chance.choice(list(self.trial.uses[subject]))
        line = self.trial.trains[subject] if trains else self.trial.uses[subject][verb]
        path = data / chance.choice(re.findall(r"{data}/(\S+)", line))
        what, refused, new = change_data(path, chance)
        may_differ = not what.startswith(("mark", "returns", "packed "))
        if verb == "predict" and not trains and what.startswith("fewer"):
            refused = False  # there is no other file that has more lines
        if trains:
            if new != path:
                new.rename(path)  # without the archive's name it is no text
            config = self.trial.once(subject, folder / "config.yaml")
            refused = refused or new != path
            return self._train(subject, config, folder, what, refused, data, may_differ)
        use = (subject, verb, self.trial.run_of(subject), folder / "use", data, (str(path), new))
        return self._judge(subject, verb, folder, None, use, (what, may_differ, refused))

    def arguments(self, subject, chance, folder):
        """A mistyped command line: the answer must be what was meant; nothing may be written."""
        kind = chance.choice(["option", "verb", "address", "choice"])
        verbs = {"address": ["predict", "train"], "choice": list(self.trial.uses[subject])}
        verb = chance.choice(verbs.get(kind, [*self.trial.uses[subject], "train"]))
        line = self.trial.uses[subject].get(verb, f"train {self.trial.trains[subject]}")
        names = {"run": self.trial.run_of(subject), "data": self.trial.data}
        line = line.replace(" --output {out}", "").format(**names).split()
        if kind != "address" and verb in ("train", "predict"):
            line += ["--output", str(folder / "out")]
        if kind == "address":
            meant = chance.choice(["gs://b/x", "s3://b/x", "hf://me/x", "x+y://b"])
            line += ["--output", meant]
        elif kind == "choice":
            meant = chance.choice(["truncate", "skip"])
            line += ["--on-too-long", mistyped(meant, chance)]
        elif kind == "verb":
            meant, line[0] = line[0], mistyped(line[0], chance)
        else:
            place = chance.choice([n for n, each in enumerate(line) if each.startswith("--")])
            name, equals, value = line[place].partition("=")
            meant = name.rpartition(".")[2].removeprefix("--")
            line[place] = name.removesuffix(meant) + mistyped(meant, chance) + equals + value
        (done, _), outside = self._watched(folder, None, lambda: (call(line, folder / "use"), None))
        outcome = outside or outcome_of(done, False, False)
        if outcome == "refused" and meant not in done.err:
            outcome = "silent difference"
        return outcome, f"{kind}, {' '.join(line)[:200]}: {done.err.strip()[-300:]}"

    def _copy(self, subject, chance, folder):
        form = chance.choice(["run", "run", "preset"])
        run = shutil.copytree(self.trial.run_of(subject, form), folder / "run")
        files = [each for each in sorted(run.rglob("*")) if each.is_file() and each.name != "LOCK"]
        return run, chance.choice(files)

    def _use(self, subject, chance, run, path, folder, what, may_differ):
        is_run = (run / "checkpoints").exists()
        verb = chance.choice(["predict", "predict", "evaluate"])
        if is_run and (path.parent.name == "checkpoints" or chance.random() < 0.2):
            verb = chance.choice(["average", "resume"])
        if is_run and "leads out" in what:
            verb = "resume"
        kept = None if verb == "resume" else run
        use = (subject, verb, run, folder / "use")
        return self._judge(subject, verb, folder, kept, use, (what, may_differ, False))

    def _train(self, subject, config, folder, what, refused, data, may_differ=True):
        (folder / "use").mkdir()
        train = (subject, config, folder / "use", data)
        return self._judge(subject, "once", folder, None, train, (what, may_differ, refused))

    def _watched(self, folder, kept, act):
        """Act; return what came of it, and `wrote outside` where a folder changed meanwhile."""
        folders = [folder / "watched", folder / "cwd", *([kept] if kept else [])]
        before = [tree(each) for each in folders]
        result = act()
        return result, "wrote outside" if [tree(each) for each in folders] != before else None

    def _judge(self, subject, verb, folder, kept, arguments, meant):
        what, may_differ, refused = meant
        act = self.trial.train_once if verb == "once" else self.trial.use
        (done, results), outside = self._watched(folder, kept, lambda: act(*arguments))
        is_same = results == self.trial.answers[subject, verb] and not refused
        lines = 40 if verb in ("once", "resume") else MOST_LINES  # a training tells how it goes
        outcome = outcome_of(done, is_same, may_differ and not refused, lines)
        if outcome == "refused" and not _says_all(what, done.err):
            outcome = "silent difference"
        if outcome == "other" and "nan" in done.out.lower():
            outcome = "silent difference"
        return outside or outcome, f"{verb}, {what}: {done.err.strip()[-300:]}"


def _says_all(what: str, said: str) -> bool:
    """Whether a refusal of a changed file names its encoding, or each of its bad lines."""
    kind = what.partition(" in line ")[0]
    if kind in WIDE:
        return f"iconv -f {kind[:6].upper()}" in said
    return kind != "two bad" or said.count(": expected UTF-8") == 2
