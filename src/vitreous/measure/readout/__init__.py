"""Linear maps from features to classes: what several analyses share."""
