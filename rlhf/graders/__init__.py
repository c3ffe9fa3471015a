"""Reward functions behind one protocol: functions, processes, HTTP; parts and their composition."""
