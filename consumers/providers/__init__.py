"""One file per kind of provider."""
