"""The command line, and the composition root: imports every room lazily, is imported by none."""
