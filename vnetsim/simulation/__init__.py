"""The event loop: rounds, participations, exchanges, and what it logs."""
