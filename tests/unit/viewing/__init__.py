"""The viewer: who may see it, what its pages say, and that a big file is never read whole."""
