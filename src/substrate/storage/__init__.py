"""Where artifacts lie: in memory, in files."""
