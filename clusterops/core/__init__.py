"""Decisions about one job and one node, as pure functions: no clock, no I/O, no client."""
