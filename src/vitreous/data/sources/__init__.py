"""Where images come from, a source a file: each lists what it holds, and decoding and caching are the same for all."""
