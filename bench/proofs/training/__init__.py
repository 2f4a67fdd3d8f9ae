"""`bench training`: supervised training as `train glpft` does it, beside trl's SFTTrainer."""
