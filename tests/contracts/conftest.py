"""Which cases a backend tests by default."""

import pytest

from tests.contracts.backend import BACKEND
from tests.contracts.registry import CASES, FIRST_CASES

# Checks that trace a graph for each case, or whose result depends on the layer and hardly on its
# options: by default, the first case of a layer stands for the others, which are slow tests.
OF_A_LAYER = {
    "test_a_fully_masked_row_agrees_with_the_oracle_and_has_finite_gradients",
    "test_a_model_that_is_written_as_a_class_has_a_summary",
    "test_an_example_alone_gives_what_it_gives_in_a_batch",
    "test_an_explicit_mask_is_the_one_that_counts",
    "test_forward_mode_gives_the_slope_of_the_gradient",
    "test_gradients_are_the_slopes_of_the_oracle",
    "test_implicit_masks_flow_in_and_out",
    "test_keras_file_loads_without_custom_objects",
    "test_memory_and_state_are_batch_first_tensors_that_a_search_can_reorder",
    "test_model_add_gives_the_layer_its_one_input",
    "test_results_are_in_the_compute_dtype_and_near_the_oracle",
    "test_second_derivatives_are_those_that_the_backend_takes_by_itself",
    "test_symbolic_call_agrees_and_knows_its_shapes",
    "test_the_layer_keeps_nothing_between_calls",
    "test_without_more_asked_for_a_call_returns_one_tensor",
}

# What JAX compiles anew for each layer, and what no backend does in its own way: three layers stand
# for all there, whose other layers are slow tests.
OF_THREE_ON_JAX = {
    "test_a_training_step_in_mixed_precision",
    "test_an_example_alone_gives_what_it_gives_in_a_batch",
    "test_float64_stays_float64",
    "test_padding_anywhere_of_anything_changes_nothing",
}
THREE = ("inner-cell-gate", "multi-head", "pointer-generator")

# Tasks train on PyTorch, too, by `fit` without a run.
ON_PYTORCH = {
    "test_texts_of_unequal_weights_train",
    "test_what_a_backend_cannot_write_is_refused_before_anything_is",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave other cases of a layer than its first to the slow tests, where they take minutes.

    JAX compiles each operation for each shape, so there it holds for every check. Of the half
    precisions, float16 overflows, and stands for both; of the lengths of padding, one does.
    Tasks train on TensorFlow, and on JAX through the command (tests/applications/test_jax.py).
    """
    for item in items:
        options = item.callspec.params if hasattr(item, "callspec") else {}
        is_task = item.path.name == "test_tasks.py" and BACKEND != "tensorflow"
        is_task &= BACKEND != "torch" or item.originalname not in ON_PYTORCH
        of_a_layer = BACKEND == "jax" or item.originalname in OF_A_LAYER
        name = options.get("name")
        other_case = of_a_layer and name in CASES and name not in FIRST_CASES
        other_option = options.get("extra", 4) != 4 or options.get("policy") == "mixed_bfloat16"
        other_layer = BACKEND == "jax" and item.originalname in OF_THREE_ON_JAX
        other_layer &= name not in THREE
        if is_task or other_case or other_layer or other_option:
            item.add_marker("slow")
