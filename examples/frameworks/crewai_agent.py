"""An agent of CrewAI. Put your model's name in place of `fake_models.crewai`."""

from crewai import Agent
from crewai.tools import tool
from fake_models import crewai

from evalq import Answer


@tool
def weather(city: str) -> str:
    """The weather of a city"""
    return "snow"


def answer(call):
    agent = Agent(role="Forecaster", goal="Tell the weather", backstory="At sea", llm=crewai(), tools=[weather])
    result = agent.kickoff(call["prompt"])
    return Answer(output=result.raw, messages=result.messages, usage=result.usage_metrics)
