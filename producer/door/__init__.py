"""The Celery task `evalq.submit`: requests of other programs, which a worker plans as detached runs."""
