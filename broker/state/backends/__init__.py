"""Backends of the store port: etcd and memory, held to one conformance suite."""
