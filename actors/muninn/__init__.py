"""The muninn room: what is known of derivations, with its evidence."""
