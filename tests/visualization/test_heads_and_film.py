"""A sheet of heads, a film of epochs, and figures that notebooks show."""

import keras
import numpy as np
import pytest

from keras_attention.visualization import (
    AttentionImages,
    ShadedTokens,
    new_figure,
    plot_alignment,
    plot_heads,
    plot_shaded,
)

PNG = b"\x89PNG"


@pytest.mark.parametrize("heads", [1, 5, 8])
def test_a_sheet_has_every_head(heads, tmp_path):
    weights = np.random.default_rng(3).random((heads, 3, 7))
    figure = plot_heads(weights, list("abcdefg"), list("xyz"), tmp_path / "a.png", title="All")
    panels = [each for each in figure.axes if each.images]
    assert len(panels) == heads
    for head, panel in enumerate(panels):
        np.testing.assert_array_equal(np.array(panel.images[0].get_array()), weights[head])
        assert panel.get_xlabel() == f"head {head}" and panel.images[0].get_clim() == (0, 1)
    assert [each.get_text() for each in panels[0].get_yticklabels()] == list("xyz")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_heads_that_do_not_fit_are_refused(tmp_path):
    for weights in (np.ones((3, 7)), np.ones((0, 3, 7)), np.ones((2, 3, 5)), -np.ones((2, 3, 7))):
        with pytest.raises(ValueError, match="Received"):
            plot_heads(weights, list("abcdefg"), list("xyz"))
    with pytest.raises(ValueError, match="greater than 0.*Received: maximum=0"):
        plot_heads(np.ones((2, 3, 7)), list("abcdefg"), list("xyz"), maximum=0)


def test_figures_show_in_a_fresh_kernel():
    """A kernel knows matplotlib's own figures once pyplot is imported, and ours by a method."""
    row, words = ShadedTokens(["a"], [0.5]), (["a"], ["b"])
    for figure in (
        new_figure(),
        plot_alignment([[1.0]], *words),
        plot_heads(np.ones((2, 1, 1)), *words),
        plot_shaded([row]),
    ):
        assert figure._repr_png_().startswith(PNG)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    return {tag: accumulator.Tensors(tag) for tag in accumulator.Tags()["tensors"]}


@pytest.mark.parametrize(("every", "steps"), [(1, [0, 1, 2, 3]), (2, [0, 2])])
def test_a_film_has_a_frame_of_each_epoch(tmp_path, every, steps, traced_nowhere):
    pytest.importorskip("tensorboard")
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones((4, 2), "float32"), np.zeros((4, 1), "float32")
    drawn = []

    def draw():
        drawn.append(float(np.array(model.get_weights()[0])[0, 0]) if model.built else None)
        return plot_alignment(np.eye(2), ["a", "b"], ["c", "d"])

    film = AttentionImages(draw, tmp_path / "logs", "words", every)
    model.build((None, 2))
    model.fit(x, y, epochs=3, verbose=0, callbacks=[film])
    (frames,) = events(tmp_path / "logs").values()
    assert [each.step for each in frames] == steps
    assert all(each.tensor_proto.string_val[2].startswith(PNG) for each in frames)
    assert drawn == sorted(drawn, reverse=True) and drawn[0] == 1.0  # of the model as it was then


def test_what_a_film_cannot_be_made_of_is_refused():
    with pytest.raises(ValueError, match="should be a function.*Received: draw=3"):
        AttentionImages(3, "logs")
    with pytest.raises(ValueError, match="every=0"):
        AttentionImages(print, "logs", every=0)
