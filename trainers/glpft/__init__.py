"""GLPFT (Shen et al., "Small LLMs Are Weak Tool Learners", arXiv 2401.07324, §3.3): a backbone is
trained on whole tool use (global), then a planner, a caller and a summarizer from it, each on its
own turns of the same instructions (local). The same code trains the paper's baselines."""
