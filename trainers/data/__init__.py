"""Ways through instructions of tool use, from the simulator, from published data and from recorded
runs, and the data sets of training examples that are made of them."""
