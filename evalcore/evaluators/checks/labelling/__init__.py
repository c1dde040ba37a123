"""What people say of answers: labels beside the verdicts of fallible checks, and what follows from them."""
