"""The submission API: aiohttp handlers, auth, request and response models, SSE, OpenAPI."""
