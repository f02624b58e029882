"""A module for each family of layers: its `ENTRIES`, by layer class."""
