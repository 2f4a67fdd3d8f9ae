"""`bench upgrades`: deployments change their version while runs are in flight."""
