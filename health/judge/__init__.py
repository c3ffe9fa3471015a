"""What one observation calls for, taken alone. Pure."""
