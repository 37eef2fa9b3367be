"""Back ends: the only modules that load a model library."""
