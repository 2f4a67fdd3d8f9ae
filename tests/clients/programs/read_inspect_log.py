"""Reads a log with inspect's own reader, and prints its contents as JSON."""

import json
import sys

from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries

path = sys.argv[1]
log = read_eval_log(path)
assert log.results is not None
assert log.samples is not None
first = log.samples[0]
print(
    json.dumps(
        {
            "status": log.status,
            "model": log.eval.model,
            "task": log.eval.task,
            "metrics": {score.name: score.metrics["mean"].value for score in log.results.scores},
            "samples": [
                {
                    "id": sample.id,
                    "epoch": sample.epoch,
                    "completion": sample.output.completion,
                    "scores": {name: score.value for name, score in (sample.scores or {}).items()},
                    "tokens": {
                        model: usage.total_tokens for model, usage in sample.model_usage.items()
                    },
                    "roles": [message.role for message in sample.messages],
                    "error": sample.error.message if sample.error else None,
                }
                for sample in log.samples
            ],
            "summaries": len(read_eval_log_sample_summaries(path)),
            "looked_up": read_eval_log_sample(path, first.id, first.epoch).id,
        }
    )
)
