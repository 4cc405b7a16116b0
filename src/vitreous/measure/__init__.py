"""Measurements: `probes/` take one pass over the images, `analyses/` many; the engine runs both."""
