"""The vocabulary of checks: how a check is declared, and a file for each family of them."""
