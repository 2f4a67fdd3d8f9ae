"""`bench gateway`: what a call through the gateway costs compared with a call of the endpoint
itself, and with LiteLLM's proxy."""
