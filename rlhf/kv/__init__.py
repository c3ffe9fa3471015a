"""Keys and values in pages: blocks and their owners, who runs in which step, and the tensors."""
