"""`bench budgets`: runs with budgets are attacked; a provider's book counts their bills."""
