"""What users write and read: our kinds, and every name and reason the parts share. No I/O, no imports of ours."""
