"""Damaged files: one line or all that the sound file says, and never much memory."""

import json
import re
import shutil
import struct

import numpy as np
import pytest
import yaml

from tests.applications.translation.pretrained import damaged_files, marian_files
from tests.applications.translation.pretrained.damaged_files import (
    FILES,
    NEEDS,
    SETTINGS,
    SLACK,
    description,
    limited_memory,
    measured,
    misspelt,
    mutations,
    outcome,
)

FOREIGN = "keras_attention.applications.translation.pretrained.foreign"


@pytest.fixture(scope="module", params=FILES)
def damaged(request, tmp_path_factory):
    """A folder of others, and the file in it that is damaged."""
    if request.param in NEEDS:
        pytest.importorskip(NEEDS[request.param])
    folder = tmp_path_factory.mktemp("damaged") / "folder"
    return request.param, folder, FILES[request.param](folder)


@pytest.fixture(autouse=True)
def recorded(damaged, monkeypatch):
    monkeypatch.setattr(f"{FOREIGN}.Transformer", damaged_files.Recorder)


def trial(damaged, count, every=1):
    """Read `count` damaged files, and measure the memory of one of `every` few, which is slow."""
    name, folder, path = damaged
    content = path.read_bytes()
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    wanted, most = measured(folder)
    assert isinstance(wanted, dict), wanted
    most = max(most, 2 * size) + SLACK
    reasons = set()
    try:
        with limited_memory():
            for number, mutated in enumerate(mutations(content, count, seed=name)):
                path.write_bytes(mutated)
                found, held = (outcome(folder), 0) if number % every else measured(folder)
                assert held < most, f"{held:,} bytes for a folder of {size:,}: {found}"
                if isinstance(found, str):
                    reasons.add(re.sub(r"\d+", "", found)[-40:])
    finally:
        path.write_bytes(content)
    assert reasons
    assert description(folder) == wanted


def test_a_sample_of_damages(damaged):
    trial(damaged, 40, every=8)


@pytest.mark.slow
def test_500_damages(damaged):
    trial(damaged, 500)


def altered_names(content, name):
    """The content with a misspelt name, wherever it stands."""
    assert name.encode() in content
    return content.replace(name.encode(), misspelt(name).encode())


def names_in(name, folder, path):
    """The names in a file: of arrays, options and settings."""
    if name in ("marian int8", "marian float32", "marian npz"):
        text = yaml.safe_dump(marian_files.OPTIONS)
        found = [f"\n{key}:" for key in yaml.safe_load(text) if f"\n{key}:" in text]
        return found + sorted(marian_files.weights_of(marian_files.OPTIONS))[::5]
    if name == "decoder.yml":
        return [f"{key}:" for key in SETTINGS]
    if path.suffix == ".json":
        return [f'"{key}"' for key in json.loads(path.read_bytes())]
    if name == "safetensors":
        content = path.read_bytes()
        head = json.loads(content[8 : 8 + struct.unpack_from("<Q", content)[0]])
        return [f'"{key}"' for key in head if key != "__metadata__"][::3]
    found = set(re.findall(rb"(?:en|de)coder/[a-z_0-9/]{4,}", path.read_bytes()))
    return sorted(each.decode() for each in found)


NAMED = ("marian int8", "decoder.yml", "safetensors", "config.json", "generation_config.json")
NAMED += ("ctranslate2 model.bin", "ctranslate2 config.json")


@pytest.mark.parametrize("damaged", NAMED, indirect=True)
def test_a_misspelt_name_is_noticed_or_changes_nothing(damaged):
    name, folder, path = damaged
    content, wanted, silent = path.read_bytes(), description(folder), []
    for each in names_in(name, folder, path):
        path.write_bytes(altered_names(content, each))
        found = outcome(folder)
        if not isinstance(found, str) and found != wanted:
            silent.append(each)
    path.write_bytes(content)
    assert not silent, silent


@pytest.mark.parametrize("damaged", ["marian int8", "marian float32"], indirect=True)
def test_every_number_in_the_head_of_a_bin_counts(damaged):
    """Lengths, types, ranks, sizes and shapes: another one is noticed."""
    _, folder, path = damaged
    content, wanted = path.read_bytes(), description(folder)
    _, count = struct.unpack_from("<QQ", content)
    heads = np.frombuffer(content, "<u8", 4 * count, 16).reshape(-1, 4)
    shapes = 16 + 32 * count + int(heads[:, 0].sum())
    offsets = list(range(8, 16 + 32 * count, 8)) + list(
        range(shapes, shapes + 4 * int(heads[:, 2].sum()) + 8, 4)
    )
    silent = []
    for place, offset in enumerate(offsets[::13]):
        for change in (1, -2) if place % 3 else (2, 256):
            mutated = bytearray(content)
            (number,) = struct.unpack_from("<I", mutated, offset)
            struct.pack_into("<I", mutated, offset, (number + change) % 2**32)
            path.write_bytes(mutated)
            found = outcome(folder)
            if not isinstance(found, str) and found != wanted:
                silent.append((offset, number, change))
    path.write_bytes(content)
    assert not silent, silent


@pytest.mark.parametrize("damaged", ["safetensors"], indirect=True)
def test_every_entry_of_a_safetensors_head_counts(damaged):
    _, folder, path = damaged
    content, wanted = path.read_bytes(), description(folder)
    (size,) = struct.unpack_from("<Q", content)
    head, data = json.loads(content[8 : 8 + size]), content[8 + size :]

    def read(changed):
        text = json.dumps(changed).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return outcome(folder)

    assert read(head) == wanted
    names = [name for name in head if name != "__metadata__"][::4]
    for name in names:
        first, last = head[name]["data_offsets"]
        for entry in (
            {"dtype": "F16"},
            {"data_offsets": [first + 4, last + 4]},
            {"data_offsets": [0, last - first]},
            {"shape": [*head[name]["shape"], 1]},
            {"shape": head[name]["shape"][1:]},
        ):
            if entry.get("data_offsets") != [first, last]:
                found = read(head | {name: head[name] | entry})
                assert isinstance(found, str) or found == wanted, (name, entry)
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", ["decoder.yml", "config.json"], indirect=True)
def test_searches_that_no_machine_can_hold_are_refused(damaged):
    name, folder, path = damaged
    content = path.read_text()
    key = "beam-size" if name == "decoder.yml" else "num_beams"
    for huge in (2**40, 10**400):
        if name == "decoder.yml":
            path.write_text(content.replace("beam-size: 4", f"beam-size: {huge}"))
        else:
            (folder / "generation_config.json").unlink(missing_ok=True)
            path.write_text(json.dumps(json.loads(content) | {key: huge}))
        assert "asks for a search that is none" in outcome(folder)
    path.write_text(content)


@pytest.mark.parametrize("damaged", ["config.json", "vocab.json"], indirect=True)
def test_a_name_that_a_file_has_twice_is_refused(damaged):
    _, folder, path = damaged
    content = path.read_text()
    path.write_text(content.rstrip()[:-1] + f", {content.strip()[1:]}")
    assert "twice" in outcome(folder)
    path.write_text(content)


@pytest.mark.parametrize("damaged", ["decoder.yml"], indirect=True)
def test_yaml_that_has_a_key_twice_is_refused(damaged):
    _, folder, path = damaged
    content = path.read_text()
    path.write_text(f"{content}beam-size: 7\n")
    assert "has 'beam-size' twice" in outcome(folder)
    path.write_text(content)


@pytest.mark.parametrize("damaged", ["ctranslate2 model.bin"], indirect=True)
def test_gated_feed_forward_layers_are_refused_by_name(damaged, tmp_path):
    _, folder, path = damaged
    shutil.copytree(folder, tmp_path / "gated")
    content = bytearray(path.read_bytes())
    # One more array after the head: version, name of the specification, revision, count.
    (length,) = struct.unpack_from("<H", content, 4)
    at = 4 + 2 + length + 4
    (count,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<I", content, at, count + 1)
    name = b"encoder/layer_0/ffn/linear_0_noact/weight\0"
    entry = struct.pack("<H", len(name)) + name + struct.pack("<BIBI", 1, 3, 0, 12) + bytes(12)
    content[at + 4 : at + 4] = entry
    (tmp_path / "gated" / "model" / "model.bin").write_bytes(content)
    found = outcome(tmp_path / "gated")
    assert "its feed-forward layers are gated: it has encoder/layer_0/ffn/linear_0_noact" in found
