"""Linear maps from features to classes, shared by several analyses."""
