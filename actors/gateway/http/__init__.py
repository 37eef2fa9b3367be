"""HTTP: the OpenAI-compatible surface and the native one, over one gateway."""
