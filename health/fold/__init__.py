"""The history of a node: events to incidents. Pure."""
