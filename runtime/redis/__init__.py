"""The Redis of a deployment: its own server, or the users of an external one."""
