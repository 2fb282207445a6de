"""Questions and corpora on disk, in every shape found in the wild."""
