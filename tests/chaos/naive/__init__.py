"""The negative control: an honest hand-made Celery set-up on Redis, under the same faults."""
