"""What was done and denied."""
