"""An agent of a shop that has everything in every colour, most of the time."""


def answer(call):
    colour = call["prompt"].removesuffix("?").split()[-1]
    return "Which one?" if (len(colour) + call["repeat"]) % 10 == 0 else f"Yes, we have it in {colour}."
