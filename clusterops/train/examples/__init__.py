"""Whole training jobs, small enough to read and to run on a laptop."""
