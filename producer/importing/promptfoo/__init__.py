"""promptfoo: its configuration files, and the results that `promptfoo eval -o FILE.json` writes."""
