"""The games that arms can learn: `protocol` is what one must say of itself, `known` lists them."""
