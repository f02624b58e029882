"""Damage and malice: bytes, JSON, weights, YAML and texts, and what a verb makes of them.

Each function changes one file in place, as the random numbers that it is given say, and returns
what it did.
"""

import gzip
import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import h5py
import keras
import numpy as np

from keras_attention.applications.common.files import CHECKSUMS, write_checksums
from tests.trial.subjects import Kinds, command
from tests.trial.workers import MOST_LINES, MOST_LINES_OF_A_TRAINING, outcome_of, tree


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
    kinds = ["nothing", "pipe", "folder", "device", "endless link", "link out"]
    kind = chance.choice(kinds[: None if watched else -1])
    if kind == "link out":
        shutil.copy(path, watched)
    path.unlink()
    if kind in ("pipe", "folder"):
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    elif kind != "nothing":
        targets = {"device": "/dev/zero", "endless link": path.name}
        path.symlink_to(targets.get(kind) or watched / path.name)
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
    if chance.random() < 0.25:
        return _dangerous(chance)
    odd = [None, True, False, -1, 0, 1.5, 1e308, float("inf"), float("nan"), "", "0", [], {}, [[]]]
    odd += ["\ud800", "x" * 100_000, "../../watched/file", "/dev/zero", "\x00", "float64"]
    return chance.choice([*odd, json.loads("[" * 900 + "]" * 900), *HUGE])


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
        }
        kind = chance.choice([*ways, "huge", "rename", "more"])
        if kind != "more":
            del file[name]
        if kind == "huge":
            file.create_dataset(name, (10**6, 10**4), "f4", chunks=(1000, 1000), compression="gzip")
        else:
            file[name if kind in ways else f"{name}_{kind}"] = ways.get(kind, old)
    return f"{kind} {name} in {path.name}"


def change_checkpoint(path: Path, chance: Random) -> str:
    """Make a checkpoint that is whole, and whose state or arrays are none of this training."""
    with np.load(path) as archive:
        arrays = dict(archive)
    name = "state" if chance.random() < 0.5 else chance.choice(list(arrays))
    old, what = arrays.pop(name), name
    if name == "state":
        text = path.with_suffix(".json")
        text.write_bytes(old.tobytes())
        what = change_json(text, chance)
        arrays[name] = np.frombuffer(text.read_bytes(), np.uint8)
        text.unlink()
    elif kind := chance.randrange(5):
        ways = np.full(old.shape, np.nan), old[None], old.astype("c8"), np.array(["x"])
        arrays[name] = ways[kind - 1]
    np.savez(path, **arrays)
    return f"{what} in {path.name}"


def change_archive(path: Path, chance: Random) -> str:
    """Change what a `.keras` file holds, and make it a whole archive again."""
    unpacked = path.with_name("unpacked")
    shutil.unpack_archive(path, unpacked, "zip")
    inside = chance.choice(sorted(each for each in unpacked.rglob("*") if each.is_file()))
    what = CHANGES.get(inside.suffix, change_bytes)(inside, chance)
    os.replace(shutil.make_archive(str(unpacked), "zip", unpacked), path)
    if chance.random() < 0.1:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("../../watched/out", b"x")
    shutil.rmtree(unpacked)
    return what


CHANGES = {".json": change_json, ".h5": change_weights, ".npz": change_checkpoint}

# ---- Configuration and texts: these return, too, whether the change must be refused.

ODD = {
    "odd": ("null", "~", "''", "0", "-1", "0.5", "2", "1e3", "2020-01-01", "[1, 2]", "{a: 1}"),
    "no number": (
        "1e400",
        ".inf",
        "1:30",
        '"null"',
        '"7"',
        "abc",
        "true",
        "1_000",
        "0x10",
        "!!int x",
    ),
    "huge": ("1e400", ".inf", ".nan", str(10**12), str(10**400)),
}


def change_yaml(path: Path, chance: Random) -> tuple[str, bool]:
    lines = path.read_text("utf-8").splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r"  \w+: *[^ ]", line)]
    numbers = [n for n in keys if re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", lines[n].split(": ")[1])]
    kind = chance.choice(["drop", "double", "rename", *ODD, "shape", "bytes"])
    at = chance.choice(numbers if kind in ("no number", "huge") else keys)
    name, old = lines[at].strip().split(": ", 1)
    new = chance.choice(ODD.get(kind, [""]))
    if kind == "bytes":
        return change_bytes(path, chance), False
    if kind == "shape":
        old = _shape_oddly(lines, chance)
    else:
        changed = {"drop": [], "double": [lines[at]] * 2, "rename": [f"  {name}_: {old}"]}
        lines[at : at + 1] = changed.get(kind, [f"  {name}: {new}"])
    path.write_text("\n".join(lines) + "\n", "utf-8")
    is_refused = new[0] in "[{" if kind == "odd" else kind != "drop"
    return f"{kind} {name}: {new[:30]} for {old}", is_refused


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


def change_data(path: Path, chance: Random) -> tuple[str, bool, Path]:
    """Change a file of texts, and perhaps its name, which is returned as well."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = chance.randrange(len(lines))
    line, before, after = lines[at], b"".join(lines[:at]), b"".join(lines[at + 1 :])
    is_json, text = path.suffix == ".jsonl", b"".join(lines)
    word = re.search(rb"source.: .(\S+)", line)[1] if is_json else re.findall(rb"\w+", line)[0]
    words = {
        "encoding": word + b"\xe9\xff",
        "nul": word + b"\x00",
        "surrogate": b"\\ud800",
        "word": b"x" * 200_000,
        "line": b"one two " * 50_000,
    }
    ways = {kind: before + line.replace(word, new, 1) + after for kind, new in words.items()} | {
        "empty": b"",
        "blank": before + b"\n" + after,
        "fewer": before + after,
        "binary": b"\xff" + chance.randbytes(2000),
        "mark": b"\xef\xbb\xbf" + text,
        "returns": text.replace(b"\n", b"\r\n"),
    }
    kind = chance.choice([*ways, "no file", "no file", "packed", "packed, cut", "packed bomb"])
    refused = {"surrogate": is_json, "fewer": path.suffix in (".source", ".target")}
    is_refused = kind in ("encoding", "empty", "binary", "packed, cut", "packed bomb")
    if kind == "no file":
        return replace_file(path, chance), True, path
    if kind in ways:
        path.write_bytes(ways[kind])
        return f"{kind} in line {at + 1} of {path.name}", refused.get(kind, is_refused), path
    path.unlink()
    path = path.with_name(f"{path.name}.gz")
    packed = gzip.compress(bytes(600 << 20) if "bomb" in kind else text, 1)
    path.write_bytes(packed[: -chance.randrange(1, 20)] if "cut" in kind else packed)
    return f"{kind} {path.name}", is_refused, path


# ---- The kinds of mutations.


class Mutations(Kinds):
    """One method for each kind: changes a copy in `folder`, and judges what a verb does with it."""

    def prepare(self, folder: Path) -> None:
        for name in ("watched", "cwd"):
            (folder / name).mkdir()
        (folder / "watched" / "file").write_text("Nobody should write here.\n")
        os.chdir(folder / "cwd")

    def bytes(self, subject, chance, folder):
        """Damage: any file of a run or preset, whose checksums stay; results must not change."""
        run, path = self._copy(subject, chance, folder)
        what = change_bytes(path, chance)
        may_differ = path.name == "metrics.jsonl"  # a log, which resuming copies
        verb = self._verb(run, path, what, chance)
        return self._judge(subject, verb, folder, run, what, may_differ)

    def stranger(self, subject, chance, folder):
        """A stranger's run or preset: all checksums are right, and the content is not."""
        run, path = self._copy(subject, chance, folder)
        kind = chance.choice(["content"] * 4 + ["file", "links"])
        if kind == "links":
            what = plant_links(run, chance, folder / "watched")
        elif kind == "file":
            what = replace_file(path, chance, folder / "watched")
        else:
            suffix = ".json" if path.name == "FORMAT" else path.suffix
            what = CHANGES.get(suffix, change_bytes)(path, chance)
        if path.name != CHECKSUMS and not (run / CHECKSUMS).is_symlink():
            write_checksums(run, but=("FORMAT",))
        return self._judge(subject, self._verb(run, path, what, chance), folder, run, what)

    def keras_file(self, subject, chance, folder):
        """A `.keras` file, damaged or a stranger's, which Keras itself reads."""
        path = Path(shutil.copy(self.trial.run_of(subject, "file.keras"), folder / "model.keras"))
        is_damaged = chance.random() < 0.4
        what = (change_bytes if is_damaged else change_archive)(path, chance)
        return self._judge(subject, "keras", folder, path, what, not is_damaged)

    def config(self, subject, chance, folder):
        """A configuration, of a run or for a training."""
        if chance.random() < 0.6:
            path = self.trial.once(subject, folder / "config.yaml")
            what, refused = change_yaml(path, chance)
            return self._judge(subject, "once", folder, path, what, True, refused)
        run = shutil.copytree(self.trial.run_of(subject), folder / "run")
        what, refused = change_yaml(run / "config.yaml", chance)
        write_checksums(run, but=("FORMAT",))
        verb = chance.choice(["predict", "evaluate"])
        return self._judge(subject, verb, folder, run, what, True, refused)

    def data(self, subject, chance, folder):
        """A file of texts, to train by or to use."""
        data = shutil.copytree(self.trial.data, folder / "data")
        verb = "once" if chance.random() < 0.3 else chance.choice(["predict", "evaluate"])
        path = data / chance.choice(re.findall(r"{data}/(\S+)", command(subject, verb)))
        what, refused, new = change_data(path, chance)
        may_differ = not what.startswith(("mark", "returns", "packed "))
        if verb != "once":
            # `predict` reads no other file that has more lines.
            refused = refused and not (verb == "predict" and what.startswith("fewer"))
            names = {"data": data, "renamed": (str(path), new)}
            run = self.trial.run_of(subject)
            return self._judge(subject, verb, folder, run, what, may_differ, refused, **names)
        if new != path:
            new.rename(path)  # without the archive's name it is no text
        run, refused = self.trial.once(subject, folder / "config.yaml"), refused or new != path
        return self._judge(subject, verb, folder, run, what, may_differ, refused, data=data)

    def _copy(self, subject, chance, folder):
        form = chance.choice(["run", "run", "preset"])
        run = shutil.copytree(self.trial.run_of(subject, form), folder / "run")
        files = [each for each in sorted(run.rglob("*")) if each.is_file() and each.name != "LOCK"]
        return run, chance.choice(files)

    def _verb(self, run, path, what, chance):
        verb, is_run = chance.choice(["predict", "predict", "evaluate"]), run / "checkpoints"
        if is_run.exists() and (path.parent == is_run or chance.random() < 0.2):
            verb = chance.choice(["average", "resume"])
        return "resume" if is_run.exists() and "leads out" in what else verb

    def _judge(self, subject, verb, folder, run, what, may_differ=True, refused=False, **names):
        trains = verb in ("once", "resume")
        folders = [folder / "watched", folder / "cwd", *([] if trains else [run])]
        before = [tree(each) for each in folders]
        done, results = self.trial.use(subject, verb, run, folder / "use", **names)
        if [tree(each) for each in folders] != before:
            return "wrote outside", f"{verb}, {what}"
        is_same = results == self.trial.answers[subject, verb] and not refused
        lines = MOST_LINES_OF_A_TRAINING if trains else MOST_LINES
        outcome = outcome_of(done, is_same, may_differ and not refused, lines)
        if outcome == "other" and "nan" in done.out.lower():
            outcome = "silent difference"
        return outcome, f"{verb}, {what}: {done.err.strip()[-300:]}"
