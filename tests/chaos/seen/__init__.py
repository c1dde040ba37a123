"""One run under faults, looked at by evalq's exporter, by celery-exporter and by Flower at the same time.

`python -m tests.chaos.seen --seed 1` runs it; what each observer said is put beside what was true.
"""
