"""The disk tier of prefix states: derived data, in a directory that may be deleted at any time."""
