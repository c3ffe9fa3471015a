"""RLHF: an ordered, verified reward queue, and PPO on it."""
