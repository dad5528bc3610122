"""Collectors of capacity, prices and latency at the site, and their pure merge."""
