"""The queue: its URL spellings, its one message, and who sends it."""
