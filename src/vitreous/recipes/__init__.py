"""The papers' recipes by name, one file per paper."""
