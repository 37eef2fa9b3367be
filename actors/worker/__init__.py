"""The worker room: one (model, profile), one process, its KV state."""
