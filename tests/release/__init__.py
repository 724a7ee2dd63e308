"""What ci/release makes, and whether it makes it twice alike."""
