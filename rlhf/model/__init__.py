"""Language models with a value head, and how they are asked."""
