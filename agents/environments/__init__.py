"""Where tasks come from: generators with exact checkers."""
