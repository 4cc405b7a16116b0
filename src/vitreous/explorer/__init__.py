"""The live explorer: a local page that shows a model at work and takes it apart."""
