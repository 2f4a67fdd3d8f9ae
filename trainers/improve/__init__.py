"""The closed loop: what a cascade escalates trains its small model, which serves once it has shown
on questions that were kept back that it is not worse."""
