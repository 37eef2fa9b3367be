"""The authority room: principals, revocations, and the registry of contracts."""
