"""Measurements: `probes/` are answered in one pass over images, `analyses/` take many; the engine runs both."""
