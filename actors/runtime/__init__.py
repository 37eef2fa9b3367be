"""Shells: what runs rooms, and connects them. A room cannot tell which one it is in."""
