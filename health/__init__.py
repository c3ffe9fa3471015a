"""GPU faults: from a kernel line to the right action."""
