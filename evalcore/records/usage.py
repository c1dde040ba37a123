"""Token counts in the forms of providers and libraries: one reader for live replies, recorded outputs and imports.

Providers count differently. OpenAI's input holds the tokens of a cache, those of Anthropic and Bedrock do not.
OpenAI's and Anthropic's output holds the tokens of reasoning, Gemini's does not. `Tokens` counts all of them in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "input": ("input", "prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", "prompt_token_count"),
    "output": (
        *("output", "completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens"),
        *("candidates_token_count", "responseTokenCount"),
    ),
    "cached_input": (
        *("cached_input", "cached_tokens", "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"),
        *("cache_read_input_tokens", "cacheReadInputTokens", "cachedContentTokenCount", "cached_content_token_count"),
        *(
            "cache_read_tokens",
            "cached_prompt_tokens",
            "prompt_cache_hit_tokens",
            "input_tokens_cache_read",
            "cachedInputTokens",
            "input_token_details.cache_read",
        ),
    ),
    "cache_write": (
        *("cache_write", "cache_creation.ephemeral_5m_input_tokens", "cache_creation_input_tokens"),
        *("cacheWriteInputTokens", "prompt_tokens_details.cache_write_tokens", "cache_write_tokens"),
        *("input_tokens_details.cache_write_tokens", "cache_creation_tokens"),
        *("input_tokens_cache_write", "input_token_details.cache_creation"),
    ),
    "cache_write_1h": ("cache_write_1h", "cache_creation.ephemeral_1h_input_tokens"),
    "reasoning": (
        *("reasoning", "reasoning_tokens", "completion_tokens_details.reasoning_tokens"),
        *("output_tokens_details.reasoning_tokens", "thoughtsTokenCount", "thoughts_token_count"),
        *("reasoningTokens", "output_token_details.reasoning", "output_tokens_details.thinking_tokens"),
        *("output_reasoning_tokens",),
    ),
}
_PATHS = tuple(_SPELLINGS.items())
_TOPS = {name: frozenset(path.partition(".")[0] for path in paths) for name, paths in _PATHS}
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens", "cacheReadInputTokens",
                 "cacheWriteInputTokens")  # fmt: skip
"""Keys of Anthropic's and Bedrock's counts, whose input does not hold the tokens of a cache."""
_BESIDE_OUTPUT = ("thoughtsTokenCount", "thoughts_token_count")
"""Keys of Gemini's counts, whose output does not hold the tokens of reasoning."""
_TOOL_PROMPT = ("toolUsePromptTokenCount", "tool_use_prompt_token_count")


def token_parts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """{field of `Tokens`: its value} of a usage in any of the forms; values are not checked. Unknown keys are left."""
    # Most records have few of the keys: the paths of the others are not followed.
    found = {name: None if _TOPS[name].isdisjoint(usage) else _first(usage, paths) for name, paths in _PATHS}
    found |= _by_time(usage.get("cacheDetails"))
    # PydanticAI counts these among those that are written.
    hour, written = usage.get("cache_write_1h_tokens"), found["cache_write"]
    if type(hour) is int and type(written) is int and 0 < hour <= written:
        found |= {"cache_write": written - hour, "cache_write_1h": hour}
    if any(usage.get(key) is not None for key in _BESIDE_INPUT):
        found["input"] = _sum(found, "input", "cached_input", "cache_write", "cache_write_1h")
    if any(usage.get(key) is not None for key in _BESIDE_OUTPUT):
        found["output"] = _sum(found, "output", "reasoning")
    if _is_count(tool := _first(usage, _TOOL_PROMPT)) and _is_count(found["input"]):
        found["input"] += tool
    return {name: value for name, value in found.items() if value is not None}


def _by_time(details: Any) -> dict[str, Any]:
    """Tokens written to a cache for 5 minutes and for an hour, as Bedrock lists them."""
    listed = [each for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []
    counts = {str(each.get("ttl")): each.get("inputTokens") for each in listed}
    names = {"5m": "cache_write", "1h": "cache_write_1h"}
    return {name: counts.get(ttl, 0) for ttl, name in names.items()} if listed and counts.keys() <= names.keys() else {}


def _sum(found: Mapping[str, Any], whole: str, *parts: str) -> Any:
    """The whole with its parts, as far as all are counts."""
    known = [found[name] for name in (whole, *parts) if found[name] is not None]
    # A reply without output tokens that only reasoned has no count of its output.
    return sum(known) if all(map(_is_count, known)) else found[whole]


def _is_count(value: Any) -> bool:
    return type(value) is int


def _first(usage: Mapping[str, Any], paths: tuple[str, ...]) -> Any:
    return next((value for path in paths if (value := _at(usage, path)) is not None), None)


def _at(usage: Mapping[str, Any], path: str) -> Any:
    holder, _, key = path.rpartition(".")
    inner = usage.get(holder) if holder else usage
    return inner.get(key) if isinstance(inner, Mapping) else None
