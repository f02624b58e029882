"""Studies: what an architecture, or a method of training, gains on real texts."""
