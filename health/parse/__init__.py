"""Kernel log text to faults: prefixes, forms, joined records. Pure, linear in the length of the text."""
