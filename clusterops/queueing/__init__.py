"""The embedded stand-in for Kueue: controllers over `scheduling`, on Kueue's own objects."""
