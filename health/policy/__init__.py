"""Thresholds, causes and a site's own decisions: one YAML file, checked, diffable. Pure."""
