"""`bench training`: supervised training as in `train glpft`, against trl's SFTTrainer."""
