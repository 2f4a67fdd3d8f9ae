"""`bench gateway-fuzz`: valid, mutated and hostile requests; none may fail, hang or leave anything
behind in the gateway."""
