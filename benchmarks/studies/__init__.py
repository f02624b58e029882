"""Studies: what a method of training gains, measured on real texts."""
