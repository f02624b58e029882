"""What the command tells people: on standard error, so that standard output holds results only."""

import sys


def say(text: str = "") -> None:
    """Print `text` to standard error at once."""
    print(text, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Write a duration as `m:ss` or `h:mm:ss`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
