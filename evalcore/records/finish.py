"""Why an answer ended, in the common words: stop, length, tool_calls, content_filter, refusal, max_turns."""

from __future__ import annotations

_WORDS = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "completed", "eos", "eos_token", "complete"), "stop"),
    **dict.fromkeys(
        (
            *("length", "max_tokens", "max_output_tokens", "max_new_tokens", "model_length"),
            "model_context_window_exceeded",
        ),
        "length",
    ),
    **dict.fromkeys(("tool_calls", "tool_use", "tool_call", "function_call"), "tool_calls"),
    **dict.fromkeys(
        (
            *("content_filter", "content_filtered", "guardrail_intervened", "safety", "recitation", "blocklist"),
            *("prohibited_content", "spii", "image_safety", "image_prohibited_content", "image_recitation"),
            *("model_armor", "jailbreak"),
        ),
        "content_filter",
    ),
    "refusal": "refusal",
    "max_turns": "max_turns",
}
"""{what providers write, in lower case: the common word}."""


def finish_word(reason: str | None) -> str | None:
    """The common word for a provider's; one that has none stays, in lower case."""
    if reason is None:
        return None
    lower = reason.lower()
    return _WORDS.get(lower, lower)
