"""Images and labels: every source in one spelling, the embedded world, augmentation and corruptions."""
