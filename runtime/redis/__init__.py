"""The Redis of a deployment: its own server, or the users of another one."""
