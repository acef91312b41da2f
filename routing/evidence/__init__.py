"""The statistics of shares: what was served, held against what was wanted."""
