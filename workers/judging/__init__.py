"""The judge: the only part of a deployment that has the hidden tests and gold answers.

Roles send it requests over the bus (`loopline.agents.judging`), with the hash of a problem in its
folder. It runs model-written programs in the sandbox and replies with figures. The modules:
`problems` (the folder), `programs` (code against tests, and why it failed), `outputs` (programs and
the answers that they print), `answers` (comparison by Math-Verify, in a child process), `service`
(a request in, an answer out).
"""
