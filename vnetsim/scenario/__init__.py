"""What a user hands in: settings files, shipped scenarios, and what of a received folder is trusted."""
