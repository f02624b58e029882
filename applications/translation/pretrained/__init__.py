"""Translators that others have trained: each format in a file of its own."""
