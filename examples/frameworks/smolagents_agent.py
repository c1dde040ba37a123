"""An agent of smolagents. Put your model in place of `fake_models.smolagents`."""

from fake_models import smolagents
from smolagents import ToolCallingAgent, tool

from evalq import Answer


@tool
def weather(city: str) -> str:
    """The weather of a city
    Args:
        city: its name
    """
    return "snow"


def answer(call):
    result = ToolCallingAgent([weather], smolagents(), return_full_result=True).run(call["prompt"])
    return Answer(output=result.output, messages=result.steps, usage=result.token_usage)
