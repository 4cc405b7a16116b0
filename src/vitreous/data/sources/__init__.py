"""Sources of images, one per file; decoding and caching are the same for all."""
