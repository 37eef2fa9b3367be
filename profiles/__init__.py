"""What a runtime promises: model contracts and runtime profiles, and where weights come from."""
