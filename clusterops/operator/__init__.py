"""Controllers that join core and kube, and the endpoint that running jobs report to."""
