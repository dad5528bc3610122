"""A Kubernetes cluster as the agent sees it: its API, and where in it this site is."""
