"""The judge: the only part of a deployment that knows hidden tests and gold answers.

Roles ask it over the bus (`loopline.agents.judging`), by the hash of a problem that lies in its
folder. It runs what models wrote in the sandbox and answers with figures. The modules: `problems`
(the folder), `programs` and `outputs` (code and mathematics), `runs` (a program for what it
prints), `answers` (by Math-Verify, in a child process), `failures` (why a program failed),
`service` (a request in, an answer out).
"""
