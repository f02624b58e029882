"""Networks written as classes stand beside KerasHub's functional backbones."""

import keras_hub
import numpy as np

from keras_attention.applications.classification import ModelConfig, build_model


def test_a_functional_backbone_leaves_networks_as_they_are(tmp_path):
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    config = ModelConfig(encoder="none", embedding_size=4, units=4)
    before = build_model(config, 9, 2)
    functional = [
        kind(vocabulary_size=8, max_sequence_length=5, **sizes)
        for kind in (keras_hub.models.BertBackbone, keras_hub.models.DistilBertBackbone)
    ]
    after = build_model(config, 9, 2)
    before.save_weights(tmp_path / "a.weights.h5")
    after.load_weights(tmp_path / "a.weights.h5")
    inputs = {"text": np.array([[4, 5]])}
    np.testing.assert_array_equal(before(inputs), after(inputs))
    assert [each.input["token_ids"].shape for each in functional] == [(None, None)] * 2
