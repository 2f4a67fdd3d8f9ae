"""What runs in the sandbox, beside the program. Standard library only, and no import from here."""
