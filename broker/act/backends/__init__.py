"""Backends of the gateway port: gRPC and simulated."""
