"""From a node's history to what has to be done, with evidence and the way back. Pure."""
