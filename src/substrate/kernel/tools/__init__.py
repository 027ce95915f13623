"""What a tool, a chain and an approval are."""
