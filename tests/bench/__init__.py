"""``make bench``: the data plane beside its peers, as ratios from one run."""
