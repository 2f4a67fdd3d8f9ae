"""`bench gateway-faults`: gateways, gpu workers and Redis are killed and frozen under clients that
reconnect; the clients' answers, the endpoint's requests and the journal must agree."""
