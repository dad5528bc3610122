"""What each route does; the table of routes is in `broker.api.table`."""
