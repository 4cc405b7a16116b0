"""Changed images and changed models: what several analyses share."""
