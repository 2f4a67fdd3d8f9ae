"""The three roles of α-UMi (Shen et al., "Small LLMs Are Weak Tool Learners: A Multi-LLM Agent",
arXiv 2401.07324): a planner that thinks, a caller that writes calls, a summarizer that answers.

`transcript` says what each of them reads, `output` what they may write. Both are what training
examples are made of, so that a model is trained on the very texts that it meets in a run.
"""
