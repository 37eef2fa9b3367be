"""What is kept: objects, heads, tables, logs and keys. Knows bytes and ids, never a room."""
