"""The programs compared, each behind the same three calls: forward, train, check."""
