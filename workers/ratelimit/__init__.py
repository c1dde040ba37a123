"""One rate limit a target, shared by the whole fleet."""
