"""The typed answer of a trace, as a line of recorded outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from evalq.evalcore.records.answers import MOST_MESSAGES, last_text, text_of
from evalq.evalcore.records.traces import conventions
from evalq.evalcore.records.traces.conventions import Said, decoded, first, kind_of_span
from evalq.evalcore.records.traces.otlp import Trace, TraceSpan

_INPUTS = ("langfuse.trace.input", "input.value", "traceloop.entity.input", "langfuse.observation.input")
_OUTPUTS = ("langfuse.trace.output", "output.value", "traceloop.entity.output", "langfuse.observation.output")
_TEXT_KEYS = ("input", "query", "question", "prompt", "text", "content", "user_input", "message")
_ANSWER_KEYS = ("output", "answer", "result", "response", "content", "text", "message", "completion")
_MOST_TEXT = 1_000
"""A longer attribute is content, not a label."""
_CONTENT = (
    "gen_ai.", "llm.", "input.", "output.", "openinference.", "traceloop.entity.", "traceloop.span.", "tool.",
    "tool_call.", "message.", "embedding.", "retrieval.", "reranker.", "document.", "telemetry.", "process.", "otel.",
    "exception.", "langfuse.observation.", "langfuse.trace.input", "langfuse.trace.output", "code.", "thread.",
)  # fmt: skip
_KEPT = ("gen_ai.agent.", "gen_ai.conversation.id", "gen_ai.workflow.name", "traceloop.workflow.name", "thread.id")


def answer_of(trace: Trace) -> dict[str, Any]:
    """The line of a trace: its id is the case, and its own input and attributes stand beside the answer."""
    spans = trace.spans
    if not spans:
        where = trace.cut or "its file"
        return {
            "case": trace.id,
            "trace": trace.id,
            "error": f"{where}: the line is cut, and no span of the trace is whole",
        }
    tree = _Tree(spans)
    root = tree.root
    attributes = _attributes_of(tree)
    line: dict[str, Any] = {"case": trace.id, "trace": trace.id, "input": tree.input()}
    line |= tree.answer()
    if trace.cut:
        line["error"] = f"{trace.cut}: a line that has a part of this trace cannot be read"
    if session := conventions.session_of(attributes):
        line["session"] = session
    start = min(span.start for span in spans if span.start) if any(span.start for span in spans) else 0
    if root.end > root.start > 0:
        line["seconds"] = (root.end - root.start) / 1e9
    attributes["spans"] = len(spans)
    if root.parent:
        attributes["root"] = "missing"
    line["extra"] = attributes
    if start:
        line["start"] = start
    return _valid(line)


def _valid(line: dict[str, Any]) -> dict[str, Any]:
    """The line; with an error in place of a conversation that is too long to be one."""
    if len(line.get("messages", ())) > MOST_MESSAGES:
        count = len(line.pop("messages"))
        line["error"] = f"messages: {count:,} of them; {MOST_MESSAGES:,} are the most"
    return line


class _Tree:
    """The spans of a trace by their parents; those under an evaluator's span are left out."""

    def __init__(self, spans: Sequence[TraceSpan]) -> None:
        by_id = {span.id: span for span in spans}
        self._above: dict[str, TraceSpan | None] = {}
        for span in spans:
            above = by_id.get(span.parent) if span.parent != span.id else None
            self._above[span.id] = above
        self.kinds = kinds = {span.id: kind_of_span(span.attributes) for span in spans}
        judges = self._nearest(spans, "evaluator")
        judged = {each.id for each in spans if kinds[each.id] == "evaluator" or judges[each.id] is not None}
        self.spans = [span for span in spans if span.id not in judged] or list(spans)
        self._working = self._nearest(self.spans, "tool", "agent")
        tops = [span for span in self.spans if self._above[span.id] is None]
        # A span without any parent is the root; otherwise the first whose parent is not here.
        self.root = next((span for span in tops if not span.parent), (tops or self.spans)[0])
        self.models = self._model_calls()
        self._said: dict[str, Said] = {}

    def _nearest(self, spans: Sequence[TraceSpan], *kinds: conventions.Kind) -> dict[str, TraceSpan | None]:
        """For each span the nearest one above it of these kinds, in linear time: a trace may be one long chain."""
        found: dict[str, TraceSpan | None] = {}
        for span in spans:
            way: set[str] = set()
            at, nearest = span.id, None
            # Spans may stand above each other in a circle.
            while at not in found and at not in way:
                way.add(at)
                above = self._above[at]
                if above is None:
                    break
                if self.kinds[above.id] in kinds:
                    nearest = above
                    break
                at = above.id
            else:
                nearest = found.get(at)
            found.update({each: None if nearest is not None and nearest.id == each else nearest for each in way})
        return found

    def _model_calls(self) -> list[TraceSpan]:
        """The calls of models, each once: a library and the client under it may both write a span of one call."""
        calls = [span for span in self.spans if self.kinds[span.id] == "model"]
        inner: set[str] = set()
        nearest = self._nearest(self.spans, "model", "agent", "tool")
        for span in calls:
            outer = nearest[span.id]
            if outer is None or self.kinds[outer.id] != "model":
                continue
            counted = bool(conventions.tokens_of(outer.attributes)) or not conventions.tokens_of(span.attributes)
            inner.add(span.id if counted else outer.id)
        return [span for span in calls if span.id not in inner]

    def said(self, span: TraceSpan) -> Said:
        if span.id not in self._said:
            self._said[span.id] = Said(span)
        return self._said[span.id]

    def input(self) -> Any:
        """The trace's own input: of its root, or else what the first call of a model was asked by the user."""
        root = self.root
        value = first(root.attributes, _INPUTS) if self.kinds[root.id] != "model" else None
        if value is None and (
            root.attributes.get("gen_ai.input.messages") is not None or self.kinds[root.id] == "agent"
        ):
            value = _asked(self.said(root).inputs)
        if value is None:
            for span in (*(each for each in self.spans if self.kinds[each.id] == "agent"), *self.models):
                if (value := _asked(self.said(span).inputs)) is not None:
                    break
        if value is None:
            found = (first(span.attributes, _INPUTS) for span in self.spans)
            value = next((each for each in found if each is not None), None)
        return _bare(value, _TEXT_KEYS, "user")

    def answer(self) -> dict[str, Any]:
        """The keys of the answer."""
        line: dict[str, Any] = {}
        messages: list[dict[str, Any]] = []
        last = max(self.models, key=lambda span: (span.end, span.start, span.id)) if self.models else None
        if last is not None:
            said = self.said(last)
            messages = [*said.inputs, *said.outputs]
            if said.finish:
                line["finish"] = said.finish
            if served := _served(last, self.models):
                line["served"] = served
            if (token := conventions.first_token(last)) is not None and last.start >= self.root.start > 0:
                line["first_token_seconds"] = (last.start - self.root.start) / 1e9 + token
            line["turns"] = len(self.models)
        else:
            whole = next((each for each in self.spans if self.kinds[each.id] == "agent"), self.root)
            said = self.said(whole)
            messages = [*said.inputs, *said.outputs] if self.kinds[whole.id] == "agent" else []
        if messages := [each for each in messages if each["role"] in _ROLES]:
            line["messages"] = messages
        line |= self._usage()
        output = self._output(messages, last)
        failed = self.root.error is not None and output in (None, "")
        if failed:
            line["error"] = self.root.error or conventions.exception_of(self.root) or "the trace ended with an error"
        elif output is None and not messages:
            line["error"] = "no span of the trace has an output"
        else:
            line["output"] = output
        if calls := self._calls():
            line["tool_calls"] = calls
        elif (messages if last is None else messages and self._called_nothing(last)) or (
            self.models and all(map(self._called_nothing, self.models))
        ):
            line["tool_calls"] = []
        return line

    def _called_nothing(self, call: TraceSpan) -> bool:
        """Whether it is known that a call of a model asked for no tool: by what it said, or by why it ended."""
        said = self.said(call)
        return bool(said.outputs) or said.finish not in (None, "tool_calls")

    def _output(self, messages: Sequence[Mapping[str, Any]], last: TraceSpan | None) -> Any:
        text = last_text(self.said(last).outputs) if last is not None else last_text(messages)
        value = first(self.root.attributes, _OUTPUTS) if self.kinds[self.root.id] != "model" else None
        if value is None and self.root.attributes.get("gen_ai.output.messages") is not None:
            value = last_text(self.said(self.root).outputs)
        if value is None:
            return text
        found = _bare(value, _ANSWER_KEYS, "assistant")
        # A whole state of a graph is no answer: the last text of the model is.
        return text if isinstance(found, dict | list) and text and len(text) * 2 < len(str(value)) else found

    def _usage(self) -> dict[str, Any]:
        """Tokens and cost of all calls of models together; of failed ones as far as they have any."""
        calls = self.models or [span for span in self.spans if self.kinds[span.id] == "agent"][:1]
        counts = [conventions.tokens_of(span.attributes) for span in calls if span.error is None or
                  conventions.tokens_of(span.attributes)]  # fmt: skip
        usage: dict[str, int] = {}
        for name in ("input", "output"):
            if counts and all(name in each for each in counts):
                usage[name] = sum(each[name] for each in counts)
        for name, holder in (("cached_input", "input"), ("cache_write", "input"), ("reasoning", "output")):
            if holder in usage and any(name in each for each in counts):
                usage[name] = sum(each.get(name, 0) for each in counts)
        costs = [conventions.cost_of(span.attributes) for span in calls if span.error is None]
        line: dict[str, Any] = {"usage": usage} if usage else {}
        if costs and all(cost is not None for cost in costs):
            line["cost"] = sum(cost for cost in costs if cost is not None)
        return line

    def _calls(self) -> list[dict[str, Any]]:
        """The calls of tools: those with a span, in order, and those that a model asked for and nobody made."""
        tools = [span for span in self.spans if self.kinds[span.id] == "tool"]
        made = [
            (span.start, {**conventions.tool_call(span), **self._parent(span)})
            for span in tools
            if not self._doubles(span)
        ]
        known = {call["id"] for _, call in made if "id" in call}
        nameless: dict[str, deque[dict[str, Any]]] = {}
        for _, call in made:
            if "id" not in call:
                nameless.setdefault(call["name"], deque()).append(call)
        for model in self.models:
            for each in (call for message in self.said(model).outputs for call in message.get("tool_calls", ())):
                identity = each.get("id")
                if identity in known:
                    continue
                if same := nameless.get(each["name"]):
                    match = same.popleft()
                    match["arguments"] = match["arguments"] or each["arguments"]
                    match |= {"id": identity} if identity else {}
                else:
                    made.append((model.end, dict(each)))
                if identity:
                    known.add(identity)
        if not tools:
            self._add_results([call for _, call in made])
        return [call for _, call in sorted(made, key=lambda each: each[0])]

    def _add_results(self, calls: Sequence[dict[str, Any]]) -> None:
        """Results of tools without spans, from the messages of later calls."""
        results: dict[str, Any] = {}
        for model in self.models:
            for message in self.said(model).inputs:
                if message["role"] == "tool" and message.get("tool_call_id"):
                    results[message["tool_call_id"]] = message.get("content")
        for call in calls:
            if "result" not in call and call.get("id") in results:
                call["result"] = results[call["id"]]

    def _doubles(self, span: TraceSpan) -> bool:
        """Whether the span above is of the same call: two instrumentations."""
        above = self._above[span.id]
        if above is None or self.kinds[above.id] != "tool":
            return False
        return bool(conventions.tool_call(above)["name"] == conventions.tool_call(span)["name"])

    def _parent(self, span: TraceSpan) -> dict[str, str]:
        """The call or the agent's span in which a tool was called, unless that is the whole trace."""
        up = self._working[span.id]
        if up is None:
            return {}
        if self.kinds[up.id] == "tool":
            return {"parent": str(conventions.tool_call(up).get("id") or up.id)}
        return {"parent": up.id} if up is not self.root and self._working[up.id] is not None else {}


_ROLES = ("system", "developer", "user", "human", "assistant", "ai", "model", "tool", "function")


def _served(last: TraceSpan, calls: Sequence[TraceSpan]) -> dict[str, str]:
    served = conventions.served_by(last.attributes)
    found = {"model": served.model, "fingerprint": served.fingerprint, "provider": served.provider}
    return {key: value for key, value in found.items() if value}


def _asked(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The last text of the user."""
    texts = (text_of(each.get("content")) for each in reversed(messages) if each["role"] in ("user", "human"))
    return next((text for text in texts if text), None)


def _bare(value: Any, keys: Sequence[str], role: str) -> Any:
    """The text in an input or output that is JSON, if it has one in a usual place; else its data."""
    data = decoded(value)
    for _ in range(3):
        if isinstance(data, dict) and isinstance(data.get("messages"), list) and data["messages"]:
            found = _text_among(data["messages"], role)
            return data if found is None else found
        if isinstance(data, list) and (found := _text_among(data, role)) is not None:
            return found
        if isinstance(data, dict) and data.keys() == {"args", "kwargs"}:  # a function that OpenLLMetry decorates
            args = data["args"]
            data = (
                args[0] if isinstance(args, list) and len(args) == 1 and not data["kwargs"] else data["kwargs"] or args
            )
            if not isinstance(data, dict | list):
                break
            continue
        holders = [key for key in ("inputs", "outputs", "output", "kwargs") if isinstance(data, dict)
                   and isinstance(data.get(key), dict | list)]  # fmt: skip
        named = [key for key in keys if isinstance(data, dict) and isinstance(data.get(key), str)]
        if named:
            return data[named[0]] if len(named) == 1 or len(data) == 1 else data
        if not holders:
            break
        data = data[holders[0]]
    return data


def _text_among(messages: Sequence[Any], role: str) -> str | None:
    """The last text of a role among messages in one of the forms of libraries."""
    for each in reversed(messages):
        if isinstance(each, list):
            if (found := _text_among(each, role)) is not None:
                return found
            continue
        if not isinstance(each, dict):
            continue
        inner: dict[str, Any] = kwargs if isinstance(kwargs := each.get("kwargs"), dict) else each
        named = str(each.get("role") or inner.get("role") or inner.get("type") or each.get("type") or "")
        same = {"user": ("user", "human"), "assistant": ("assistant", "ai", "AIMessageChunk", "model")}[role]
        if named in same and (text := text_of(inner.get("content", inner.get("parts")))):
            return text
    return None


def _attributes_of(tree: _Tree) -> dict[str, Any]:
    """Attributes that say what the trace is about: of the root, its resource, and then of the other spans."""
    found: dict[str, Any] = {}
    for span in (tree.root, *tree.spans):
        for given in (span.attributes, span.resource):
            for key, value in given.items():
                if key not in found and _is_label(key):
                    if isinstance(value, str | int | float) and len(str(value)) <= _MOST_TEXT:
                        found[key] = value
                    elif isinstance(value, list) and value and all(isinstance(each, str) for each in value):
                        found[key] = value[:100]
        if isinstance(inner := decoded(span.attributes.get("metadata")), dict):
            for key, value in inner.items():
                if isinstance(value, str | int | float) and len(str(value)) <= _MOST_TEXT:
                    found.setdefault(f"metadata.{key}", value)
    found.pop("metadata", None)
    return dict(sorted(found.items()))


@lru_cache(maxsize=4096)
def _is_label(key: str) -> bool:
    return key.startswith(_KEPT) or not key.startswith(_CONTENT)
