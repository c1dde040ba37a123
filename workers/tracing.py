"""OpenTelemetry traces: off unless OTEL_EXPORTER_OTLP_ENDPOINT is set, and then with the extra `evalq[otel]`.

A run is a trace. The trace id is derived from the run id, so producer and workers share a trace without passing it in
messages. Spans name runs and chunks, never inputs, answers or the text of an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Protocol

from evalq.evalcore.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import SpanContext


VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class SpanAttributes(Protocol):
    """A span, while it lasts."""

    def set_attribute(self, key: str, value: str | int) -> None:
        """Note a fact."""

    def add_event(self, name: str, attributes: Mapping[str, str | float]) -> None:
        """Note that something happened."""


class _Off:
    def set_attribute(self, key: str, value: str | int) -> None:
        """Nothing is traced."""

    def add_event(self, name: str, attributes: Mapping[str, str | float]) -> None:
        """Nothing is traced."""


_NEXT_SPAN: ContextVar[SpanContext | None] = ContextVar("evalq_given_span", default=None)
_NOTHING: AbstractContextManager[SpanAttributes] = contextlib.nullcontext(_Off())


def span(name: str, run: str, **facts: str | int) -> AbstractContextManager[SpanAttributes]:
    """A step of a run: a child of the step around it, else of the run itself. Raises ConfigError without the extra."""
    return _spanned(name, run, facts, root=False) if _on() else _NOTHING


def run_span(run: str, *, begun: bool) -> AbstractContextManager[SpanAttributes]:
    """The span of the run itself, for its driver; if the run has ``begun`` before, a "resume" span inside it."""
    return _spanned("resume" if begun else "run", run, {}, root=not begun) if _on() else _NOTHING


def trace_results(run: str, numbers: Mapping[str, float]) -> None:
    """Add the results of a finished run to a span: an event `gen_ai.evaluation.result` for each number.

    The names are those of OpenTelemetry's semantic conventions for generative AI. If the extra is missing, this does
    nothing: the run has reported that when it began.
    """
    try:
        if not numbers or not _on():
            return
    except ConfigError:
        return
    with span("result", run) as step:
        for name, value in numbers.items():
            step.add_event(
                "gen_ai.evaluation.result",
                {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value},
            )


def answer_trace(run: str, case: str, repeat: int) -> str:
    """The trace id of an answer, 32 hex digits; any process can compute it."""
    return _answer_ids(run, case, repeat)[:32]


def traceparent(run: str, case: str, repeat: int) -> str:
    """The W3C trace context for the agent that gives an answer, so that its own spans have the answer's trace id."""
    ids = _answer_ids(run, case, repeat)
    return f"00-{ids[:32]}-{ids[32:48]}-01"


def _answer_ids(run: str, case: str, repeat: int) -> str:
    # The zero bytes keep the parts apart.
    return hashlib.sha256(f"{run}\0{case}\0{repeat}".encode(errors="surrogatepass")).hexdigest()


def flush() -> None:
    """Send this process's remaining spans, before it ends without Python's own shutdown."""
    if _on() and _provider.cache_info().currsize:
        _provider(os.getpid()).shutdown()


@cache
def _on() -> bool:
    if not os.environ.get(VARIABLE):
        return False
    try:
        import opentelemetry.sdk.trace  # noqa: F401 - the rest of this module imports from it when it is needed
    except ImportError:
        raise ConfigError(f"{VARIABLE} is set: install evalq[otel], or unset it") from None
    return True


def _processor() -> SpanProcessor:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())


@cache
def _provider(pid: int) -> TracerProvider:
    """One provider per process: its sending threads do not survive a fork."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    service = os.environ.get("OTEL_SERVICE_NAME", "evalq")
    resource = Resource.create({"service.name": service, "process.pid": pid})
    provider = TracerProvider(resource=resource, id_generator=_ids())
    provider.add_span_processor(_processor())
    return provider


@contextlib.contextmanager
def _spanned(name: str, run: str, facts: dict[str, str | int], *, root: bool) -> Iterator[SpanAttributes]:
    from opentelemetry import trace
    from opentelemetry.context import Context

    tracer = _provider(os.getpid()).get_tracer("evalq")
    origin = _origin(run)
    around = trace.get_current_span().get_span_context()
    # If the application traces, too, its span belongs to another trace, and must not become the parent.
    context = None if around.trace_id == origin.trace_id else Context()
    if context is not None and not root:
        context = trace.set_span_in_context(trace.NonRecordingSpan(origin), context)
    attributes = {"evalq.run": run} | {f"evalq.{key}": value for key, value in facts.items()}
    # start_span takes no id; the id generator reads it from here.
    token = _NEXT_SPAN.set(origin if root else None)
    try:
        new = tracer.start_span(f"evalq.{name}", context=context, attributes=attributes)
    finally:
        _NEXT_SPAN.reset(token)
    with trace.use_span(new, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield new
        except BaseException as error:
            # The type alone: the text of an error may quote an input.
            new.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


def _origin(run: str) -> SpanContext:
    """The run's own span; any process can compute its id."""
    from opentelemetry.trace import SpanContext, TraceFlags

    digest = hashlib.sha256(run.encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _ids() -> IdGenerator:
    """An id generator: random ids, except for the span of a run (`_NEXT_SPAN`)."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            chosen = _NEXT_SPAN.get()
            return chosen.trace_id if chosen else super().generate_trace_id()

        def generate_span_id(self) -> int:
            chosen = _NEXT_SPAN.get()
            return chosen.span_id if chosen else super().generate_span_id()

    return Ids()
