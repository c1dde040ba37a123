"""An agent of LangChain, which is a graph of LangGraph. Put your model in place of `fake_models.langchain`."""

from fake_models import langchain
from langchain.agents import create_agent

from evalq import Answer


def weather(city: str) -> str:
    """The weather of a city"""
    return "snow"


def answer(call):
    agent = create_agent(langchain(), [weather])
    result = agent.invoke({"messages": [{"role": "user", "content": call["prompt"]}]})
    return Answer(messages=result["messages"])
