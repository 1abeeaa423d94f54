"""Reads settings files and scenarios, finds plug-ins, and refuses code that only a received folder names."""
