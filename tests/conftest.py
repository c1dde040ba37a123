"""What holds for every test: hypothesis looks at answers, never at how long a busy machine took for them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("evalq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evalq")
