"""`bench gateway`: the cost of a call through the gateway, compared with a direct call of the
endpoint and with LiteLLM's proxy."""
