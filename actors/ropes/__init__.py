"""The ropes room: objects, sequence nodes and heads; the only writer of the object store."""
