"""Models without a server, each of its framework's own kind: they call a tool, and then say what it gave.

Each uses 20 tokens and then 30, of which 8 are from a cache where the framework has a place for that, and gives 5.
"""


def langchain():
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools, **options):
            return self

    def used(tokens):
        details = {"cache_read": 8}
        return {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5, "input_token_details": details}

    call = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}
    asks = AIMessage("", tool_calls=[call], usage_metadata=used(20))
    says = AIMessage("Expect snow.", usage_metadata=used(30), response_metadata={"model_name": "fake"})
    return Model(messages=iter([asks, says]))


def openai_agents():
    from agents import Model, ModelResponse, Usage, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class Fake(Model):
        async def get_response(self, *args, **asked):
            last = asked["input"][-1] if isinstance(asked["input"], list) else {}
            if last.get("type") == "function_call_output":
                text = ResponseOutputText(text=f"Expect {last['output']}.", type="output_text", annotations=[])
                item = ResponseOutputMessage(
                    id="m1", role="assistant", status="completed", type="message", content=[text]
                )
                usage = Usage(requests=1, input_tokens=30, output_tokens=5, total_tokens=35)
                return ModelResponse([item], usage, None)
            call = ResponseFunctionToolCall(
                call_id="c1", name="weather", arguments='{"city": "Oslo"}', type="function_call"
            )
            return ModelResponse([call], Usage(requests=1, input_tokens=20, output_tokens=5, total_tokens=25), None)

        async def stream_response(self, *args, **options):
            raise NotImplementedError

    return Fake()


def pydantic_ai():
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    def reply(messages, info):
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            usage = RequestUsage(input_tokens=30, output_tokens=5, cache_read_tokens=8)
            return ModelResponse([TextPart(f"Expect {last.content}.")], usage=usage)
        usage = RequestUsage(input_tokens=20, output_tokens=5, cache_read_tokens=8)
        return ModelResponse([ToolCallPart("weather", {"city": "Oslo"}, "c1")], usage=usage)

    return FunctionModel(reply)


def smolagents():
    from smolagents import ChatMessage, Model
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
    from smolagents.monitoring import TokenUsage

    class Fake(Model):
        def generate(self, messages, **options):
            seen = any(message.role == MessageRole.TOOL_RESPONSE for message in messages)
            name, arguments = ("final_answer", {"answer": "Expect snow."}) if seen else ("weather", {"city": "Oslo"})
            function = ChatMessageToolCallFunction(name=name, arguments=arguments)
            call = ChatMessageToolCall(id="c2" if seen else "c1", type="function", function=function)
            usage = TokenUsage(30 if seen else 20, 5)
            return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call], token_usage=usage)

    return Fake(model_id="fake")


def crewai():
    from crewai import BaseLLM

    class Fake(BaseLLM):
        def supports_function_calling(self):
            return True

        def call(self, messages, *args, **options):
            seen = any(message["role"] == "tool" for message in messages)
            tokens = {"prompt_tokens": 30 if seen else 20, "completion_tokens": 5, "cached_prompt_tokens": 8}
            self._track_token_usage_internal(tokens)
            if seen:
                return "Expect snow."
            return [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}]

    return Fake(model="fake")
