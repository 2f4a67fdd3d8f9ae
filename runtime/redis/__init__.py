"""The Redis of a deployment: the server it starts, and the users of a server it is given."""
