"""Arms under conditions at seeds: planned, run by workers, collected."""
