"""`bench training`: supervised training as `train glpft` does it, against trl's SFTTrainer."""
