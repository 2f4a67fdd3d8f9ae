"""`bench gateway-faults`: gateways, gpu workers and Redis are killed and frozen under clients that
reconnect; what the clients read, what the endpoint was asked and the journal must agree."""
