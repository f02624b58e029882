"""Files that were damaged, planted or swapped: nothing follows a link, hangs or fills memory."""

import gzip
import os
import resource
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_attention.applications.answer_selection.results import Answer, Ranking
from keras_attention.applications.base.preprocessor import as_texts
from keras_attention.applications.base.verbs import chunks_of_lines
from keras_attention.applications.classification.results import draw_confusion
from keras_attention.applications.data.lines import Lines, taken
from keras_attention.applications.errors import UserError
from keras_attention.applications.show import explanation
from keras_attention.applications.store import files
from keras_attention.applications.store.files import (
    check_new_file,
    json_object,
    lines_of,
    new_folder,
    output_file,
    replacing,
    verify_checksum,
    write_checksums,
    write_text,
)
from keras_attention.applications.store.weights import load_weights, save_weights
from keras_attention.applications.summarization.results import Summary
from keras_attention.applications.translation.results import Translation


def test_a_link_under_a_temporary_name_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".partial-config.yaml").symlink_to(outside)
    write_text(folder / "config.yaml", "new")
    assert outside.read_text() == "mine"
    assert (folder / "config.yaml").read_text() == "new"


def test_a_link_under_the_name_itself_is_replaced(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "metrics.jsonl").symlink_to(outside)
    write_text(tmp_path / "metrics.jsonl", "new")
    assert outside.read_text() == "mine"
    assert not (tmp_path / "metrics.jsonl").is_symlink()


def test_what_is_written_can_be_read_by_those_whom_the_umask_lets(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
        with new_folder(tmp_path / "b") as folder:
            folder.mkdir()
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o750


def test_a_full_disk_is_named_with_the_file(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"a.txt could not be written: File too large"):
            write_text(tmp_path / "a.txt", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room")
def test_weights_are_written_only_where_there_is_room(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64)])  # 2,304 bytes
    path = tmp_path / "a.weights.h5"
    save_weights(model, path)
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    # HDF5 may crash the process when it closes a file that has no room.
    monkeypatch.setattr(keras.Model, "save_weights", lambda *_: pytest.fail("HDF5 began to write"))
    try:
        with pytest.raises(UserError, match=r"a.weights.h5 could not be written: File too large"):
            save_weights(model, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == size
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_no_more_room_is_asked_for_than_weights_take(tmp_path):
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(1000)])
    save_weights(model, tmp_path / "a.weights.h5")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (tmp_path / "a.weights.h5").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2**15, limits[1]))
    try:
        save_weights(model, tmp_path / "b.weights.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "b.weights.h5").stat().st_size == size


def test_of_two_writers_of_one_output_the_later_is_refused(tmp_path):
    path = tmp_path / "out.txt"
    both = threading.Barrier(2)

    def write(text):
        try:
            with output_file(path) as file:
                file.write(text)
                both.wait(30)
        except UserError as error:
            return str(error)
        return text

    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(write, ["one", "two"]), key=len)
    assert results[0] == path.read_text()
    assert "out.txt already exists" in results[1]


def test_a_preparation_in_progress_is_left_alone(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(UserError, match="already exists"), new_folder(path) as slow:
        slow.mkdir()
        with new_folder(path) as fast:
            fast.mkdir()
            (fast / "kept").write_text("")
        assert slow.is_dir()
    assert [each.name for each in tmp_path.rglob("*")] == ["a", "kept"]


def test_half_a_surrogate_pair_is_named(tmp_path):
    with pytest.raises(UserError, match=r"data.jsonl, line 3: expected Unicode text.*ud800"):
        json_object(r'{"text": "a\ud800"}', "data.jsonl, line 3")
    with (
        pytest.raises(UserError, match=r"out.txt: a text holds .*ud800"),
        output_file(tmp_path / "out.txt") as file,
    ):
        print("a\ud800", file=file)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["[" * 100_000, "{}{", "[1]", "NaN", '"a"', '{"a": ' * 50_000])
def test_json_that_is_no_object_is_refused(text):
    with pytest.raises(UserError, match="line 1: "):
        json_object(text, "line 1")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(UserError, match="expected a file. Received: a "):
        list(lines_of(path))


def test_a_gz_that_inflates_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_attention.applications.store.files.MOST_INFLATED", (10_000, 200))
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"a\n" * 500_000))
    with pytest.raises(UserError, match="inflates to more than"):
        list(lines_of(path))
    path.write_bytes(gzip.compress(b"zwei hunde\n" * 500))
    assert len(list(lines_of(path))) == 500


def test_rows_of_an_array_are_an_array():
    ids = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(taken(ids, range(1, 3)), ids[1:])


def test_lines_are_like_a_list_and_small():
    texts = ["", "été", "\U0001f600 a", "\ud800", "b" * 50] * 3000
    tracemalloc.start()
    lines = Lines(iter(texts))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1.2 * (sum(len(each.encode("utf-8", "replace")) for each in texts) + 16 * 15_000)
    assert lines == texts and list(lines) == texts and len(lines) == 15_000
    assert (lines[2], lines[-1], lines[1:3]) == (texts[2], texts[-1], texts[1:3])
    assert lines.take(np.array([4, 1])) == [texts[4], texts[1]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb", ["a", "b"]),
        (b"\xef\xbb\xbfa\r\n\n\xe2\x80\xa8b\n", ["a", "", "\u2028b"]),
        (b"\n", [""]),
        (b"\xef\xbb\xbf\n", [""]),
        (b"", None),
        (b"\xef\xbb\xbf", None),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".gz"])
def test_lines_of_a_file(tmp_path, content, expected, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    if expected is None:
        with pytest.raises(UserError, match="is empty: expected at least one line"):
            list(lines_of(path))
    else:
        assert list(lines_of(path)) == expected


@pytest.mark.parametrize("suffix", [".txt", ".gz"])
@pytest.mark.by_default(".txt")
def test_predict_reads_a_file_of_any_length_in_the_same_memory(tmp_path, suffix):
    def peak(count):
        path = tmp_path / f"{count}{suffix}"
        with gzip.open(path, "wb") if suffix == ".gz" else open(path, "wb") as file:
            file.writelines(b"%d some words of a line\n" % n for n in range(count))
        tracemalloc.start()
        found = sum(map(len, chunks_of_lines(str(path), 64)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == count
        return most

    # The first file is longer than any buffer, the second two million bytes longer.
    assert peak(160_000) < peak(80_000) + 60_000


def test_a_bad_line_is_refused_before_any_work(tmp_path):
    (tmp_path / "a").write_bytes(b"a\n" * 999 + b"\xff\n")
    with pytest.raises(UserError, match="a, line 1000: expected UTF-8"):
        next(chunks_of_lines(str(tmp_path / "a"), 10))


def pictures():
    """A picture of each task."""
    weights = np.array([[0.25, 0.75], [1.0, 0.0]])
    words = ["a", "b"]
    summary = Summary("a b", 0.0, 0.0, words, weights[0], weights[1], [words], weights, weights[0])
    labels = {"confusion": [[1, 2], [0, 3]], "label_names": ["x", "y"]}
    answer = Answer("a b", 0.5, ["a", "b"], weights[0], 0)
    return {
        "summary": summary.plot,
        "translation": Translation("a b", 0.0, 0.0, ["a", "b"], ["c", "d"], weights).plot,
        "ranking": Ranking("who ?", (answer,)).plot,
        "confusion": lambda path: draw_confusion(labels, path),
    }


@pytest.mark.parametrize("name", ["summary", "translation", "ranking", "confusion"])
def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch, name):
    path, plot = tmp_path / "a.png", pictures()[name]
    save = Figure.savefig

    def killed(figure, file, **options):
        save(figure, file, **options)
        Path(file).write_bytes(Path(file).read_bytes()[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Figure, "savefig", killed)
        plot(path)
    assert not list(tmp_path.iterdir())
    plot(path)
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError, match="a.png already exists"):
        plot(path)


def small_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="d")])
    for variable in model.weights:
        variable.assign(np.arange(variable.shape.num_elements(), dtype="f").reshape(variable.shape))
    return model


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.weights.h5"
    save_weights(small_model(), path)
    write_checksums(tmp_path)
    return path


def test_no_flip_or_cut_of_weights_gives_other_weights(saved):
    whole = saved.read_bytes()
    random = np.random.default_rng(5)
    for place in random.integers(0, len(whole), 60):
        content = bytearray(whole)
        content[place] ^= 1 << int(random.integers(8))
        saved.write_bytes(content if place % 4 else whole[:place])
        with pytest.raises(UserError, match="model.weights.h5 is damaged or was changed"):
            load_weights(small_model(), saved)
    saved.write_bytes(whole)
    load_weights(small_model(), saved)


def test_without_checksums_hdf5_says_it_in_one_line(saved):
    (saved.parent / "CHECKSUMS").unlink()
    whole = saved.read_bytes()
    for end in (0, 7, 100, len(whole) // 2):
        saved.write_bytes(whole[:end])
        with pytest.raises(UserError, match="model.weights.h5 cannot be loaded") as caught:
            load_weights(small_model(), saved)
        assert "\n" not in str(caught.value)


def test_new_weights_are_known_before_they_have_their_name(saved, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("keras_attention.applications.store.files._put", killed)
        model = small_model()
        model.layers[0].bias.assign([7.0, 8.0])
        save_weights(model, saved)
    verify_checksum(saved)  # still the old ones
    save_weights(model, saved)
    verify_checksum(saved)
    save_weights(small_model(), saved)
    assert (saved.parent / "CHECKSUMS").read_text().count("weights") == 2


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    model = small_model()
    model.layers[0].bias.assign([1.0, value])
    save_weights(model, tmp_path / "a.weights.h5")
    with pytest.raises(UserError, match="weights that are NaN or infinite"):
        load_weights(small_model(), tmp_path / "a.weights.h5")


@pytest.mark.parametrize("kind", ["link", "external", "large"])
def test_weights_that_lead_out_of_their_file_are_refused(saved, kind):
    (saved.parent / "CHECKSUMS").unlink()
    outside = saved.parent / "outside"
    outside.write_bytes(b"\0" * 8)
    with h5py.File(saved, "r+") as file:
        group = file["layers/dense/vars"]
        del group["1"]
        if kind == "link":
            group["1"] = h5py.ExternalLink(str(saved.parent / "other.h5"), "x")
        elif kind == "external":
            group.create_dataset("1", (2,), "f", external=[(str(outside), 0, 8)])
        else:
            group.create_dataset("1", (2**40,), "f", chunks=(1024,), compression="gzip")
    with pytest.raises(UserError, match="leads out|lies in another file|holds more than it does"):
        load_weights(small_model(), saved)


def test_sound_weights_come_back(saved):
    model = small_model()
    model.layers[0].bias.assign([5.0, 5.0])
    load_weights(model, saved)
    for loaded, own in zip(model.weights, small_model().weights, strict=True):
        np.testing.assert_array_equal(loaded.numpy(), own.numpy())


def test_weights_that_are_replaced_while_they_are_verified_are_sound(saved, monkeypatch):
    known = files.known_checksums

    def replaced(folder):
        found = known(folder)
        monkeypatch.undo()
        model = small_model()
        model.layers[0].bias.assign([7.0, 8.0])
        save_weights(model, saved)
        return found

    monkeypatch.setattr(files, "known_checksums", replaced)
    verify_checksum(saved)
    verify_checksum(saved)


def test_an_error_names_what_was_to_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, cause in (("gone", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(UserError, match=f"{folder}/a.txt could not be written: {cause}.$"):
            write_text(tmp_path / folder / "a.txt", "")
    refused = pytest.raises(UserError, match="file/new could not be written: Not a directory.$")
    with refused, new_folder(tmp_path / "file" / "new"):
        pytest.fail("made in a file")
    with pytest.raises(UserError, match=r"^\. already exists"):
        check_new_file("")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_texts_are_known_by_what_they_say():
    assert files.digest({"x": Lines(["a", "b"])}) == files.digest({"x": ["a", "b"]})
    assert files.digest(Lines(["a", "b"])) != files.digest(Lines(["a", "c"]))
    assert files.digest("ab") != files.digest(["a", "b"])


def test_bytes_that_are_no_text_are_named():
    assert as_texts([b"a", "b"], "x") == ["a", "b"]
    with pytest.raises(ValueError, match=r"`x` should hold strings.*Received: x\[1\]=b'.xff'"):
        as_texts(["a", b"\xff"], "x")


def test_a_page_that_came_meanwhile_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "a.html"
    path.write_text("mine")
    monkeypatch.setattr(explanation, "check_page", lambda path: None)
    page = explanation.Explanation("translation", {"text": "a"}, "b", [])
    with pytest.raises(UserError, match="a.html already exists"):
        page.save(path)
    assert path.read_text() == "mine"


def test_a_replacement_ends_as_the_file_does(tmp_path):
    with replacing(tmp_path / "a.weights.h5") as temporary:
        assert temporary.name.endswith(".weights.h5")
        assert temporary.parent == tmp_path
        temporary.write_text("")
