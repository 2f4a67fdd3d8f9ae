"""The three roles of α-UMi (Shen et al., "Small LLMs Are Weak Tool Learners: A Multi-LLM Agent",
arXiv 2401.07324): a planner that thinks, a caller that writes calls, a summarizer that answers.

`transcript` defines their inputs, `output` their outputs. Training examples are built with both, so
a model is trained on exactly the texts that it sees in a run.
"""
