"""`bench flow`: workers on one rate limit, and tenants on one deployment."""
