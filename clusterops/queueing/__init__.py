"""The embedded stand-in for Kueue and for the pod scheduler, on Kueue's own objects."""
