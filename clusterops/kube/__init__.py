"""A small controller runtime that knows Kubernetes and nothing of training, queues or GPUs."""
