"""The gateway port to agents and what is sent over it."""
