"""What one deployment is: profiles, files, environment and options, resolved and typed."""
