"""Configuration of one deployment: profiles, files, environment and options, resolved and typed."""
