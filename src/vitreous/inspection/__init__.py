"""Look inside: all questions, all models, one pass over the images."""
