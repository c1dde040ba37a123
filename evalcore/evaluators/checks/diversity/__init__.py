"""How diverse the answers to one case are, and whether they collapsed to one kind: `texts` says when two are the same,
`drawn` what a chunk keeps of them, `section` what the report says.
"""
