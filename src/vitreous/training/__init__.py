"""From a model, data and a recipe to a trained model and its record."""
