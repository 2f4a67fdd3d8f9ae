"""What runs in the sandbox, alongside the program. Standard library only, and no import from
here."""
