"""When a vehicle is in reach of a roadside unit: positions in, windows out."""
