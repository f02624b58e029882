"""What a task does when a run is continued or used, whatever its model is."""

import dataclasses
from pathlib import Path
from typing import Any

import keras

from keras_attention.applications.common.config import changed_keys, load_config, save_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.run_folder import RunFolder


def take_over(folder: RunFolder, config: Any) -> None:
    """Make `config` the run's own, where it differs only in what may be changed.

    Args:
        folder: the run folder, which this process holds for writing.
        config: the task's configuration; its section `training` says what may be changed.

    Raises:
        UserError: if another key was changed.
    """
    own = load_config(type(config), [folder.config])
    changed = changed_keys(own, config)
    allowed = [f"training.{name}" for name in own.training.resumable]
    # A batch is the same on other devices.
    allowed += [f"distribute.{field.name}" for field in dataclasses.fields(own.distribute)]
    if refused := [key for key in changed if key not in allowed]:
        why = ", as training.schedule cosine falls to 0 over all epochs"
        raise UserError(
            f"{folder.path} cannot be continued with another {', '.join(refused)}"
            f"{why if 'training.epochs' in refused else ''}: only "
            f"{', '.join(allowed)} may be changed with --resume."
        )
    if changed:
        save_config(config, folder.config)


def load_weights(model: keras.Model, path: Path) -> None:
    """Load the weights of a run into `model`.

    Raises:
        UserError: where the file is damaged or fits another model.
    """
    try:
        model.load_weights(path)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} cannot be loaded ({type(error).__name__}): it is damaged, or config.yaml "
            "was changed since it was written. `train --resume` on the run writes it anew once "
            "a better epoch comes."
        ) from None
