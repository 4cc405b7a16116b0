"""The commands, one in a file; `vitreous.cli` assembles them."""
