"""Files that run in the sandbox with the program. They use only the standard library and import
nothing else from Loopline."""
