"""Many commands at one instant with one ``--once`` key: who computes, who waits, and what all of them show."""
