"""What the door costs, as ratios against the same work without it, in one run."""
