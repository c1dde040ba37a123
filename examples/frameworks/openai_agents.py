"""An agent of the OpenAI Agents SDK. Put your model's name in place of `fake_models.openai_agents`."""

from agents import Agent, Runner, function_tool
from fake_models import openai_agents

from evalq import Answer


@function_tool
def weather(city: str) -> str:
    """The weather of a city"""
    return "snow"


async def answer(call):
    agent = Agent(name="weather", model=openai_agents(), tools=[weather])
    result = await Runner.run(agent, call["prompt"])
    return Answer(output=result.final_output, messages=result.to_input_list(), usage=result.context_wrapper.usage)
