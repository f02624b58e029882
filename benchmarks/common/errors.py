"""The error that ends a program with one line."""


class BenchmarkError(Exception):
    """Something is missing or failed, or programs do not compute the same thing."""
