"""`python -m benchmarks.litert`: a step of the Transformer's decoder in LiteRT and in TensorFlow.

The step goes through Keras' own exporter, in float32 and with weights of eight bits (dynamic
range), which LiteRT runs by XNNPACK. One thread each; random weights, size `base`.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contenders.transformers import OurModel, set_weights
from benchmarks.problems import Problem, Size

WORDS, PLACES, INDEX = 20, 32, 17
"""Of a source; of a cache; the number of the step."""


class Step(keras.Model):
    """A step of a translation network, its state as plain inputs and outputs."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, inputs):
        """Return the logits and the caches after the step."""
        tokens, index, state = inputs["tokens"], inputs["index"][0], inputs["state"]
        logits, after = self.network.step(tokens, state, index)
        caches = keras.tree.flatten(after["decoder"])
        return {"logits": logits, **{f"cache_{place}": x for place, x in enumerate(caches)}}


def inputs_of(network, rows: int) -> dict:
    """Return inputs of a step in the middle of a translation, random where that does not matter."""
    rng = np.random.default_rng(0)
    source = rng.integers(4, 8000, (rows, WORDS)).astype("int32")
    state = network.start(source, max_length=PLACES)
    del state["attention_scores"]
    state["decoder"] = keras.tree.map_structure(
        lambda x: tf.constant(rng.normal(size=x.shape), tf.float32), state["decoder"]
    )
    return {"tokens": source[:, 0], "index": np.array([INDEX], "int32"), "state": state}


def milliseconds(function, seconds: float) -> float:
    """Return the median time of a call."""
    function()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def exported(step: Step, inputs: dict, **options):
    """Return the interpreter of a step, its inputs filled, and the megabytes of its file."""
    signature = keras.tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), inputs)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.tflite"
        step.export(file, format="litert", input_signature=[signature], verbose=False, **options)
        content = file.read_bytes()
    interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    given = [np.asarray(x) for x in keras.tree.flatten(inputs)]
    for place in interpreter.get_input_details():  # those of one shape are as good as one another
        shape, dtype = tuple(place["shape"]), place["dtype"]
        fits = (x for x in given if x.shape == shape and x.dtype == dtype)
        interpreter.set_tensor(place["index"], next(fits))
    return interpreter, len(content) / 1e6


def main() -> None:
    """Print a line for each form and number of rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.litert")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 128])
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    problem = Problem("translation", Size(32, 30, WORDS, 512))
    model = OurModel(512)
    set_weights(model, problem)
    step = Step(model.model)
    print("| rows | form | ms a step | tokens/s | MB |\n| --: | --- | --: | --: | --: |")
    for rows in options.rows:
        inputs = inputs_of(model.model, rows)
        step(inputs)
        compiled = tf.function(step, autograph=False)
        forms = [("TensorFlow", partial(compiled, inputs), "")]
        for form, how in (("LiteRT", []), ("LiteRT, int8", [tf.lite.Optimize.DEFAULT])):
            interpreter, megabytes = exported(step, inputs, optimizations=how)
            forms.append((form, interpreter.invoke, f"{megabytes:.0f}"))
        for form, function, megabytes in forms:
            found = milliseconds(function, options.seconds)
            print(f"| {rows} | {form} | {found:.1f} | {rows / found * 1e3:.0f} | {megabytes} |")


if __name__ == "__main__":
    main()
