"""Side-by-side measurements of the package against PyTorch and against plain Keras layers."""
