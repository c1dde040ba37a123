"""An agent of a shop. It knows every answer; how often it gives one depends on its prompt."""

import hashlib
from pathlib import Path

ANSWERS = {
    "Where is my parcel?": "It comes on Monday.",
    "How can I pay?": "By card or invoice.",
    "Can I return shoes?": "Yes, within 30 days.",
    "Do you ship to Norway?": "Yes, we ship to Norway.",
    "What does shipping cost?": "It costs 4 euros.",
    "When do you open?": "At 9 in the morning.",
    "Is there a discount for students?": "Yes, 10 percent.",
    "How do I reset my password?": "We send you a link.",
    "Where is your shop?": "In Oslo.",
    "Do you sell gift cards?": "Yes, every gift card is valid for a year.",
    "How long is the warranty?": "It is two years.",
    "Can I change my order?": "Within an hour.",
    "Do you repair bags?": "Yes, we repair them.",
    "Which sizes are there?": "From 36 to 46.",
    "Is the leather vegan?": "It is cork.",
    "How do I contact you?": "By mail.",
    "Can I pay later?": "Yes, by invoice.",
    "Do you have a newsletter?": "Yes, the newsletter comes each month.",
    "How do I delete my account?": "In the settings.",
    "Do you ship on Sundays?": "No, not on a Sunday.",
}


def answer(call):
    prompt = Path(__file__).with_name("prompt.md").read_text()
    luck = int(hashlib.sha256(f"{call['prompt']} {call['repeat']} {prompt}".encode()).hexdigest(), 16) % 100
    if luck < (95 if "Answer the question" in prompt else 60):
        return ANSWERS[call["prompt"]]
    return "Thank you for your message. We will come back to you."
