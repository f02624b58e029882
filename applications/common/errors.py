"""Errors that a user can put right, each with the exit status the command leaves with."""


class UserError(ValueError):
    """Something the user gave is wrong: the command says so in one line, exit status 2."""

    exit_status = 2


class TrainingDiverged(UserError):
    """The loss is no longer a number; what was saved before is kept, exit status 3."""

    exit_status = 3


class Preempted(UserError):
    """The system asked the process to end; a checkpoint was written, exit status 143."""

    exit_status = 143


def one_line(error: BaseException) -> str:
    """Return the message of `error` on one line, or the name of its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
