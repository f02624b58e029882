"""The entry point of the command.

Importing any part of `keras_attention` imports Keras, and so TensorFlow: some seconds, and lines
of log on standard error. This package is therefore also installed by itself, as
`keras_attention_command`, and uses the standard library alone: help and misspelt options are
answered at once, and TensorFlow is imported with its log held back.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .parser import parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    Args:
        arguments: those after the program's name; `sys.argv`'s where not given.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.verb == "train" and options.help and options.task is None:
        print(options.show_train_help())
        return 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with held_back_unless_error():
            from keras_attention.applications.cli import run
    except KeyboardInterrupt:
        return 130
    return run(options)


@contextmanager
def held_back_unless_error() -> Iterator[None]:
    """Keep what is written to standard error back, and show it if the block fails.

    Some lines of TensorFlow's start-up are written by C++ code that no setting silences.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception:
            log.seek(0)
            os.write(kept, log.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
