"""Files on disk: atomic writes, checksums and fingerprints, locks, and the folder of a training
run."""
