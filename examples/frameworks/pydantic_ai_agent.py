"""An agent of PydanticAI. Put your model's name in place of `fake_models.pydantic_ai`."""

from fake_models import pydantic_ai
from pydantic_ai import Agent

from evalq import Answer

agent = Agent(pydantic_ai())


@agent.tool_plain
def weather(city: str) -> str:
    """The weather of a city"""
    return "snow"


async def answer(call):
    result = await agent.run(call["prompt"])
    return Answer(output=result.output, messages=result.all_messages())
