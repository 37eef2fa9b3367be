"""The assembler room: contracts, grammars, token streams, and what a context is."""
