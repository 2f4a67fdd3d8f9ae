"""Solutions of tool-use instructions, from the simulator, from published data and from recorded
runs, and the data sets of training examples made from them."""
