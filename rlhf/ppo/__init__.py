"""PPO and its relatives as formulas over tensors: no queue, no model, no I/O, no clock."""
