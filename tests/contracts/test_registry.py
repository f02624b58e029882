"""The registry is complete: every public layer, every constructor argument, every weight."""

import inspect
import json

import keras
import numpy as np
import pytest

from keras_attention import layers
from tests.contracts.kinds import weight_of
from tests.contracts.registry import CASES, ENTRIES, PLAIN
from tests.contracts.test_calls import assert_close, functional, results_of

CONFIGS = [(cls, make) for cls, entry in ENTRIES.items() for make in entry.configs]
CONFIG_NAMES = [f"{cls.__name__}-{place}" for place, (cls, _) in enumerate(CONFIGS)]


def public_layers():
    """The layers that the package exports."""
    exported = [getattr(layers, name) for name in layers.__all__]
    return [x for x in exported if inspect.isclass(x) and issubclass(x, keras.layers.Layer)]


def arguments_of(cls):
    """The constructor's own arguments, without those of every Keras layer."""
    kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith(layers.__name__)]
    constructors = [vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)]
    parameters = [p for each in constructors for p in inspect.signature(each).parameters.values()]
    others = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p for p in parameters if p.name != "self" and p.kind not in others}


def constructed(cls, options):
    """A layer of a class; of a base class, that of its entry."""
    return ENTRIES[cls].cases[0].layer(**options)


def test_every_public_layer_has_an_entry():
    assert public_layers(), "keras_attention.layers exports no layer"
    missing = [cls.__name__ for cls in public_layers() if cls not in ENTRIES]
    assert not missing, f"add an entry to tests/contracts/entries for: {missing}"
    assert all(entry.cases for entry in ENTRIES.values())
    assert len(CASES) == sum(len(entry.cases) for entry in ENTRIES.values()), "names repeat"


# Some layers have these only for Keras, which hands the masks that inputs carry over by them.
CARRIED = {"inputs_mask", "words_mask", "sentences_mask", "logits_mask"}


def masks_that_apply(case):
    """The masks that a case's call takes: not those of absent inputs, nor those it must refuse."""
    accepted = inspect.signature(case.layer.call).parameters
    masks = {m for m in accepted if m.endswith("mask") and not m.startswith("use_")}
    masks -= CARRIED - set(case.inputs())
    absent = set(accepted) - set(case.inputs())
    masks -= {f"{name}_mask" for name in absent}
    refused = (case.wrong(case.inputs()) if case.wrong else {}).values()
    masks -= {name for arrays in refused for name in arrays} - set(case.inputs())
    # Keras hands the mask of an only input over as `mask`: another name of the first one's.
    return masks - {"mask"} if f"{case.first}_mask" in masks else masks


def test_every_mask_applies_in_some_case():
    for cls, entry in ENTRIES.items():
        plain = [case for case in entry.cases if case.name in PLAIN]
        accepted = {m for case in plain for m in inspect.signature(case.layer.call).parameters}
        wanted = {m for m in accepted if m.endswith("mask") and not m.startswith("use_")}
        tried = {name for case in plain for name in case.inputs()}
        assert wanted - tried <= {"mask"} | CARRIED, cls.__name__


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_case_describes_what_its_layer_has(name):
    """So that no check falls away by what a case leaves out."""
    case = PLAIN[name]
    inputs = case.inputs()
    assert hasattr(case.layer, "step") == (case.steps is not None), "a step needs `steps`"
    assert case.output in case.axes and set(inputs) <= set(case.axes)
    masks = masks_that_apply(case)
    assert masks <= set(inputs), "every mask that the call takes is among the arrays"
    # A mask of a sequence pads it; only a mask of pairs (B, T, S), which joins two, does not.
    pairs = [name for name in masks if name not in case.masks]
    assert all(len(case.axes[name]) > 2 for name in pairs), pairs
    for mask, carrier in case.masks.items():
        assert case.axes[carrier][:-1] == case.axes[mask], f"{carrier} cannot carry {mask}"
        assert np.any(inputs[mask]) and not np.all(inputs[mask]), f"{mask} hides nothing"


@pytest.mark.parametrize("cls", ENTRIES, ids=lambda cls: cls.__name__)
def test_configs_cover_every_argument_with_another_value_than_its_default(cls):
    configs = [make() for make in ENTRIES[cls].configs]
    for name, parameter in arguments_of(cls).items():
        values = [config[name] for config in configs if name in config]
        assert values, f"no config of {cls.__name__} gives `{name}`"
        assert any(value != parameter.default for value in values), f"`{name}` is its default"
    unknown = {name for config in configs for name in config} - set(arguments_of(cls))
    assert not unknown


@pytest.mark.parametrize(("cls", "make"), CONFIGS, ids=CONFIG_NAMES)
def test_config_holds_every_argument_and_makes_the_layer_again(cls, make):
    options = make()
    layer = constructed(cls, {**options, "name": "named", "dtype": "mixed_bfloat16"})
    config = layer.get_config()
    for name in arguments_of(cls):
        assert name in config, f"`{name}` is not in the config"
    for name, value in options.items():
        assert config[name] == keras.saving.serialize_keras_object(value), name
    written = json.loads(json.dumps(config))
    restored = type(layer).from_config(written)
    assert restored.get_config() == config
    assert restored.name == "named"
    assert restored.dtype_policy.name == "mixed_bfloat16"
    assert type(layer).from_config(written).get_config() == config, "from_config altered its input"


@pytest.mark.parametrize("cls", public_layers(), ids=lambda cls: cls.__name__)
def test_registered_under_the_package(cls):
    bases = {layers.AttentionMechanism: "call", layers.ScoredAttention: "score"}
    if cls in bases:  # what is saved is a subclass
        with pytest.raises(NotImplementedError, match=bases[cls]):
            cls()(keras.ops.ones((2, 3, 5)))
    else:
        assert keras.saving.get_registered_name(cls) == f"keras_attention>{cls.__name__}"
        assert keras.saving.get_registered_object(f"keras_attention>{cls.__name__}") is cls


@pytest.mark.parametrize("name", CASES)
def test_weights_are_pinned_by_name_shape_and_order(name):
    """Saved models load by these: a change here is a change of the file format."""
    layer = CASES[name].build()
    variables = {path: weight_of(layer, path) for path in CASES[name].weights}
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    assert shapes == CASES[name].weights
    for path, variable in variables.items():
        assert variable.path.split("/")[-1] == path.rpartition(".")[2]
    own = [weight for weight in layer.weights if "seed" not in weight.path]
    paths = {id(variable): path for path, variable in variables.items()}
    assert [paths.get(id(weight), weight.path) for weight in own] == list(CASES[name].weights)


@pytest.mark.parametrize(
    ("cls", "options"),
    [(cls, options) for cls, entry in ENTRIES.items() for options in entry.refused],
    ids=lambda value: value.__name__ if inspect.isclass(value) else "-".join(map(str, value)),
)
def test_constructor_refuses(cls, options):
    with pytest.raises(ValueError, match="Received: "):
        constructed(cls, options)


@pytest.mark.parametrize("name", CASES)
def test_keras_file_loads_without_custom_objects(name, tmp_path):
    case = CASES[name]
    model, inputs = functional(name), case.inputs()
    # Keras 3.12 loads no model with an input that nothing reads.
    read = {
        f"{key} read": keras.layers.Identity(autocast=False)(x) for key, x in model.input.items()
    }
    model = keras.Model(model.input, {**model.output, **read})
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(results_of(loaded, inputs), results_of(model, inputs), atol=1e-6)
