"""The embedded Kubernetes API server; knows nothing of training: kinds and schemas are handed in."""
