"""`bench gateway`: what a call through the gateway costs beside a call of the endpoint itself, and
beside LiteLLM's proxy."""
