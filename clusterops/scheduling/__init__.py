"""Kueue's decisions about the cluster, pure: quota tree, order of the queue, flavors, victims, and why."""
