"""The gateway room: the outside world's dialect. It owns connections and the table of API keys,
and no state that a model sees."""
