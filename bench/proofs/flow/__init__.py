"""`bench flow`: workers that share one rate limit, and tenants that share one deployment."""
