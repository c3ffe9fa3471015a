"""Imported by users' training code: sessions, verified checkpoints, notice of preemption."""
