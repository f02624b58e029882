"""Any Keras RNN cell, seen from a decoder: its states as one flat list, its dropout, its sizes."""

import inspect

import keras
from keras import ops, tree


class DecoderCell:
    """A view of a cell, made anew for each use; the cell itself holds the weights.

    Args:
        cell: Any Keras RNN cell, `keras.layers.StackedRNNCells` included.
        dtype: The dtype of the states that a loop carries.
    """

    def __init__(self, cell, dtype):
        self.cell = cell
        self.dtype = dtype

    @property
    def output_size(self) -> int:
        """Size of the cell's output, of the top one's in a stack."""
        size = getattr(self.cell, "output_size", None)
        return self.state_sizes[0] if size is None else size

    @property
    def state_sizes(self) -> list[int]:
        """Sizes of all states, one cell after the other."""
        return tree.flatten(self.cell.state_size)

    def __call__(self, inputs, flat_states, training=False):
        """Return the output and the flat list of states after one step."""
        arguments = {}
        if "training" in inspect.signature(self.cell.call).parameters:
            arguments["training"] = bool(training)
        size = self.cell.state_size
        structure = size if tree.is_nested(size) else [size]
        states = tree.pack_sequence_as(structure, list(flat_states))
        output, states = self.cell(inputs, states, **arguments)
        # The cell may compute in another dtype; what the loop carries keeps its own.
        return self._cast(output), [self._cast(leaf) for leaf in tree.flatten(states)]

    def top_state(self, flat_states):
        """Return the first state of the top cell: by Keras' convention its last output."""
        if isinstance(self.cell, keras.layers.StackedRNNCells):
            return flat_states[-len(tree.flatten(self.cell.state_size[-1]))]
        return flat_states[0]

    def initial_states(self, batch_size, given=None) -> list:
        """Return the flat list of first states: those given, or else the cell's own zeros."""
        if given is not None:
            self.check_states(given, batch_size)
            return [self._cast(leaf) for leaf in tree.flatten(given)]
        zeros = getattr(self.cell, "get_initial_state", None)
        if zeros is not None:
            return [self._cast(leaf) for leaf in tree.flatten(zeros(batch_size=batch_size))]
        return [ops.zeros((batch_size, size), self.dtype) for size in self.state_sizes]

    def check_states(self, given, batch_size):
        """Refuse states that are not this cell's."""
        sizes = self.state_sizes
        shapes = [tuple(state.shape) for state in tree.flatten(given)]
        batch_sizes = [*(shape[0] for shape in shapes if shape), batch_size]
        known = {size for size in batch_sizes if isinstance(size, int)}
        if [shape[1:] for shape in shapes] != [(size,) for size in sizes] or len(known) > 1:
            raise ValueError(
                f"`initial_state` must hold {len(sizes)} states of sizes {sizes}, in the cell's "
                f"order, one row for each example. Received: {len(shapes)} of shapes {shapes}"
            )

    def draw_dropout(self, batch_size, input_size):
        """Draw the masks of cells with dropout before the loop, which must stay stateless."""
        size = input_size
        for cell in self._cells():
            state_size = tree.flatten(cell.state_size)[0]
            if getattr(cell, "dropout", 0):
                cell.get_dropout_mask(ops.ones((batch_size, size), cell.compute_dtype))
            if getattr(cell, "recurrent_dropout", 0):
                ones = ops.ones((batch_size, state_size), cell.compute_dtype)
                cell.get_recurrent_dropout_mask(ones)
            size = getattr(cell, "output_size", None) or state_size

    def forget_dropout(self):
        """Drop the masks that were drawn."""
        for cell in self._cells():
            if hasattr(cell, "reset_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _cells(self):
        stacked = isinstance(self.cell, keras.layers.StackedRNNCells)
        return self.cell.cells if stacked else [self.cell]

    def _cast(self, tensor):
        return ops.cast(tensor, self.dtype)
