"""What an evaluator is, and what every one of them shares: params, tally, partial answers, the registry."""
