"""Kueue's decisions about the whole cluster, as pure functions on immutable snapshots."""
