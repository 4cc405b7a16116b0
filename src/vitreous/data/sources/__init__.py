"""Sources of images, one per file: each lists what it holds; decoding and caching are the same
for all."""
