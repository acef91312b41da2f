"""The values that cross between control plane and data plane. Pure."""
