"""The worker that computes: Celery's pool, the one task, and what takes apart a chunk that kills."""
