"""Settings: what a configuration holds, and how it is read, written and described.

Importing `keys`, `help` and the sections needs no Keras, so that `--help` answers at once.
"""
