"""`bench budgets`: runs under budgets, attacked; a provider's book counts their bills."""
