"""Acting on heads: rank, ablate, prune."""
