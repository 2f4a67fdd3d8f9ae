"""The closed loop: a cascade's escalations train its small model, and a new version serves once
held-back questions show that it is not worse."""
