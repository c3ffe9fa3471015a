"""Diagnosis of an RLHF run from its journal, samples and metrics: pure analyses, one verdict."""
