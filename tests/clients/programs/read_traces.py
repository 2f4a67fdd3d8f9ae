"""Reads exported episodes with verifiers' own reader, and prints their contents as JSON."""

import json
import sys
from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.state import State
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import Trace
from verifiers.v1.utils.trace_store import read_episodes

episodes = read_episodes(Path(sys.argv[1]), Trace[WireTaskData, State, WireAgentConfig])
print(
    json.dumps(
        [
            {
                "id": episode.id,
                "ok": episode.ok,
                "task": episode.task.key,
                "errors": [error.message for error in episode.errors],
                "traces": [
                    {
                        "agent": trace.agent.name,
                        "model": trace.agent.config.model,
                        "trainable": trace.agent.trainable,
                        "reward": trace.reward,
                        "rewarded": bool(trace.rewards),
                        "reply": trace.last_reply,
                        "roles": [message.role for message in trace.messages],
                        "tools": [tool.name for tool in trace.tools],
                        "branches": [
                            {
                                "ids": branch.token_ids,
                                "sampled": branch.sampled_mask,
                                "logprobs": branch.logprobs,
                            }
                            for branch in trace.branches
                        ],
                    }
                    for trace in episode.traces
                ],
            }
            for episode in episodes
        ]
    )
)
