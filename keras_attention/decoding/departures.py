"""Finished hypotheses leave the loop, so that the others go on without their cost."""

from collections.abc import Callable

from keras import ops, tree

# The batch shrinks when at most this part of it is still open: a step that is shorter by less
# would not pay for moving all that the loop carries.
OPEN, OF = 3, 4


class Departures:
    """Shrinks what a loop carries to the hypotheses that are still open, between its stretches.

    The results of those that leave are written to their places among the results of all. Of the
    variables, `state`, `constants` and (on its second axis) `weights` have `copies` rows for each
    of what leaves as one, `index` and `results` have none, and all others have one.

    Args:
        is_open: Callable from the loop's variables to booleans, one for each of what leaves.
        copies: Integer, rows of the caller's state that leave together.
    """

    def __init__(self, is_open: Callable, copies: int = 1):
        self._is_open = is_open
        self._copies = copies

    def first(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and what is fixed, their numbers of rows unknown to a graph."""
        count = known_when_run(ops.shape(self._is_open(loop))[0])
        numbers = ops.arange(count, dtype="int32")
        fixed = {**fixed, "numbers": numbers}
        fixed["results"] = results(loop, fixed)
        return self._picked(loop, numbers), self._picked(fixed, numbers)

    def are_due(self, loop: dict):
        """Whether so many are finished that it pays to shrink the batch."""
        is_open = self._is_open(loop)
        return ops.sum(ops.cast(is_open, "int32")) * OF <= ops.shape(is_open)[0] * OPEN

    def made(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and what is fixed without what is finished, and its results noted.

        Those of what is still open are noted, too: as they are, if the loop ends here.
        """
        numbers = ops.expand_dims(fixed["numbers"], 1)
        noted = tree.map_structure(
            lambda every, some: ops.scatter_update(every, numbers, some),
            fixed["results"],
            results(loop, fixed),
        )
        (places,) = ops.nonzero(self._is_open(loop))
        places = ops.cast(places, "int32")
        return self._picked(loop, places), self._picked({**fixed, "results": noted}, places)

    def _picked(self, parts: dict, places) -> dict:
        rows = places[:, None] * self._copies + ops.arange(self._copies, dtype="int32")
        rows = ops.reshape(rows, (-1,))
        taken = {
            "state": lambda x: ops.take(x, rows, axis=0),
            "constants": lambda x: ops.take(x, rows, axis=0),
            "weights": lambda x: ops.take(x, rows, axis=1),
            "index": lambda x: x,
            "results": lambda x: x,
        }

        def picked(x):
            return ops.take(x, places, axis=0)

        return {
            key: tree.map_structure(taken.get(key, picked), part) for key, part in parts.items()
        }


def known_when_run(number):
    """Return an integer out of a loop of no turns: TensorFlow's graphs hold it for unknown."""
    number = ops.convert_to_tensor(number, dtype="int32")
    (number,) = ops.while_loop(lambda i: i < 0, lambda i: (i + 1,), (number,))
    return number
