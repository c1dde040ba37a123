"""How polite an answer is: half a point each for "please" and for thanks."""


def score(record):
    text = record["output"].lower()
    missing = [word for word in ("please", "thank") if word not in text]
    return 1 - len(missing) / 2, ", ".join(f"no {word.replace('thank', 'thanks')}" for word in missing)
