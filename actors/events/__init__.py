"""The events room: what happened since you last looked."""
