"""Import cases, targets and recorded outputs of other tools."""
