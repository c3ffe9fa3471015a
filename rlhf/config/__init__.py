"""Configuration of a run: what may be said, where each value came from, what follows. No torch."""
