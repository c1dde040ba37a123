"""A loop without a framework. `fake_model` stands for a call of your model's API."""

from evalq import Answer


def fake_model(messages):
    if messages[-1]["role"] == "tool":
        return {"content": f"Expect {messages[-1]['content']}.", "usage": {"input": 30, "output": 5}}
    call = {"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
    return {"content": None, "tool_calls": [call], "usage": {"input": 20, "output": 5}}


def answer(call):
    messages = [{"role": "user", "content": call["prompt"]}]
    while messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        messages.append({"role": "assistant", **fake_model(messages)})
        calls = messages[-1].get("tool_calls", ())
        messages += [{"role": "tool", "tool_call_id": each["id"], "content": "snow"} for each in calls]
    return Answer(messages=messages)
