"""From rows to the snapshot that the gateways read."""
