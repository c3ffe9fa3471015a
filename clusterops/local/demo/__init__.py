"""The demo: chapters that each show one thing on real processes, told line by line as it happens."""
