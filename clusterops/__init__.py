"""clusterops runs AI training on a cluster; importing this package imports nothing else."""
