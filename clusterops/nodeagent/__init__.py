"""Runs the pods bound to one node as processes on this machine; speaks only the Kubernetes API."""
