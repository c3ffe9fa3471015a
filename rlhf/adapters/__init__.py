"""Other engines behind the interface of ours: vLLM, and transformers' continuous batching."""
