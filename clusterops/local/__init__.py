"""Starts and stops the parts as processes on one machine, in one state folder."""
