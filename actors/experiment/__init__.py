"""Measuring and checking a profile from outside: over HTTP, and in processes of its own."""
