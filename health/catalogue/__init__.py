"""What codes mean: tables with a source for each row, decoded by driver version. Pure."""
