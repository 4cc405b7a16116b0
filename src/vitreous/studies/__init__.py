"""Studies: trainings and measurements on them, planned from what claims need."""
