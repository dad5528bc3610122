"""The Python client of the API. Knows the vocabulary only; no gRPC, no solver."""
