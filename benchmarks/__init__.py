"""Measurements of the package: `python -m benchmarks --help` lists them.

`speed` has layers and models beside those of others, `studies` what a method of training gains, and
`common` what both need.
"""
