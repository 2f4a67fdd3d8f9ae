"""Plays a taskset of verifiers as an environment, and prints the outcome as JSON."""

import asyncio
import json
from itertools import islice

import verifiers.v1 as vf
from verifiers.v1.configs.taskset import TasksetConfig

from loopline.agents.environments.puzzle_splits import Split
from loopline.agents.environments.verifiers_tasksets import taskset_environment


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 5)


class InARuntime(SumTask):
    @vf.reward
    async def files(self, trace: vf.Trace, runtime: object) -> float:
        return 1.0


class WithoutPrompt(SumTask):
    pass


class Sums(vf.Taskset[SumTask]):
    kind = SumTask

    def load(self):
        for number in range(60):
            prompt = None if self.kind is WithoutPrompt else f"What is {number} + {number}?"
            data = SumData(prompt=prompt, system_prompt="Be brief.", answer=str(2 * number))
            yield self.kind(data, self.config.task)


def environment_of(kind):
    taskset = type("Sums", (Sums,), {"kind": kind})
    return taskset_environment("sums", "Sums", taskset(TasksetConfig()))


def refusal(kind):
    environment = environment_of(kind)
    try:
        next(environment.stream(Split.TRAIN, 1, environment.difficulty()))
    except ValueError as error:
        return str(error)
    return None


def played(environment, puzzle, text):
    # As in a worker: only from a run's data, and within a running event loop.
    instance = environment.parse(json.loads(puzzle.task.model_dump_json())["instance"])

    async def play():
        episode = environment.open(instance)
        transition = episode.apply("solver", text)
        local = {part.group: part.score for part in transition.rewards.parts}["local"]
        return [local, episode.verify().reason]

    return asyncio.run(play())


sums = environment_of(SumTask)
level = sums.difficulty()
puzzles = list(islice(sums.stream(Split.TRAIN, 7, level), 5))
again = list(islice(environment_of(SumTask).stream(Split.TRAIN, 7, level), 5))
held_out = list(islice(sums.stream(Split.TEST, 7, level), 3))
first = puzzles[0]
lenient = next(sums.stream(Split.TRAIN, 7, sums.difficulty(solved_from=0.25)))
print(
    json.dumps(
        {
            "seen": first.observe("solver", ()),
            "answer": first.data["answer"],
            "right": played(sums, first, first.data["answer"]),
            "wrong": played(sums, first, "no"),
            "long": played(sums, first, "I do not know."),
            "lenient": played(sums, lenient, "no"),
            "same": [puzzle.id for puzzle in puzzles] == [puzzle.id for puzzle in again],
            "apart": not {puzzle.id for puzzle in puzzles} & {puzzle.id for puzzle in held_out},
            "in_a_runtime": refusal(InARuntime),
            "without_prompt": refusal(WithoutPrompt),
        }
    )
)
