"""Several translation networks that write together."""

import keras
import numpy as np
import pytest

from keras_attention.applications.base.preprocessor import padded
from keras_attention.applications.text import PAD_ID, START_ID
from keras_attention.applications.translation import Ensemble, RNNSearch, Translator
from keras_attention.applications.translation.search import force, search
from keras_attention.decoding import SearchOptions
from tests.applications.commands import call_command
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES, make_translator

# Each test searches or scores a batch: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
ARCHITECTURES = ("rnnsearch", "transformer")


@pytest.fixture(scope="module")
def single():
    return [make_translator("words", architecture=each) for each in ARCHITECTURES]


@pytest.fixture(scope="module")
def together(single):
    return Translator.ensemble(single)


def test_probabilities_are_the_mean_word_by_word(single, together):
    inputs, _ = together.preprocessor(SOURCE_LINES, y=TARGET_LINES)
    logits = [np.asarray(each.backbone(inputs), np.float64) for each in single]
    each = [np.exp(x - x.max(-1, keepdims=True)) for x in logits]
    mean = np.mean([x / x.sum(-1, keepdims=True) for x in each], axis=0)
    np.testing.assert_allclose(np.exp(together.backbone(inputs)), mean, rtol=1e-5)
    alignments = [task.score(SOURCE_LINES[:1], TARGET_LINES[:1])[0].alignment for task in single]
    (found,) = together.score(SOURCE_LINES[:1], TARGET_LINES[:1])
    np.testing.assert_allclose(found.alignment, np.mean(alignments, axis=0), atol=1e-6)


def test_it_searches_as_it_scores(together):
    """Beams are reordered, caches grow: what is found has the probability that forcing gives it."""
    ids = padded(together.preprocessor.source_tokenizer.encode(SOURCE_LINES))
    found = search(together.backbone, ids, SearchOptions(beam_size=3, max_length=19))
    labels, lengths = np.array(found.tokens)[:, 0], np.array(found.lengths)[:, 0]
    assert max(lengths) > 16  # beyond a cache's first room
    labels = np.where(np.arange(labels.shape[1]) < lengths[:, None], labels, PAD_ID)
    target = np.pad(labels, ((0, 0), (1, 0)), constant_values=START_ID)[:, :-1]
    losses, attention = force(together.backbone, ids, target, labels)
    np.testing.assert_allclose(found.log_probabilities[:, 0], -np.sum(losses, axis=1), rtol=1e-4)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(
            found.attention[row, 0, :length], attention[row, :length], atol=1e-5
        )


@pytest.mark.slow
def test_it_is_saved_as_one_task(together, tmp_path):
    expected = together.translate(SOURCE_LINES[0])
    together.save_to_preset(tmp_path / "preset")
    together.save(tmp_path / "task.keras")
    for again in (
        Translator.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        found = again.translate(SOURCE_LINES[0])
        assert (found.text, found.score) == (expected.text, pytest.approx(expected.score, rel=1e-5))


@pytest.mark.slow
def test_the_command_takes_several_runs(single, together, tmp_path, capsys):
    for name, task in zip("ab", single, strict=True):
        task.save_to_preset(tmp_path / name)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in SOURCE_LINES))
    options = ["--input", tmp_path / "lines"]
    done = call_command(capsys, "predict", tmp_path / "a", tmp_path / "b", *options)
    found = together.translate(SOURCE_LINES)
    assert (done.status, done.out.splitlines()) == (0, [each.text for each in found])


def test_what_has_no_mean_is_refused(single):
    with pytest.raises(ValueError, match="two at least. Received: networks="):
        Ensemble([single[0].backbone])
    other = RNNSearch(9, 8, embedding_size=3, units=5)
    with pytest.raises(ValueError, match=r"`source_vocabulary_size` of all.*Received: \[\d+, 9\]"):
        Ensemble([single[0].backbone, other])
    pieces = make_translator()
    with pytest.raises(ValueError, match="one preprocessor.*another one of translator 2 of 2"):
        Translator.ensemble([single[0], pieces])
    with pytest.raises(ValueError, match=r"two at least. Received: networks=\[\]"):
        Translator.ensemble([])
    with pytest.raises(ValueError, match="Received: preprocessor=None"):
        Translator.ensemble([single[0], Translator(single[1].backbone)])
