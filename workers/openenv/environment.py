"""An OpenEnv server as an environment. The agent `player` sees the server's observations, its texts
are parsed as actions, and the sum of an episode's rewards decides whether it is solved.

A run stores a seed and the actions as texts, and a replay asks the server for everything again. So
the same seed and the same actions must lead to the same episode. The start is checked: a puzzle
contains a hash of the first observation after its reset.
"""

from __future__ import annotations

import json
import os
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

from pydantic import Field

from loopline.agents.environments.conversation import (
    Conversation,
    ConversationEpisode,
    Judged,
    TurnLevel,
    TurnSetting,
)
from loopline.agents.environments.environment import AgentSpec, Environment
from loopline.agents.environments.game import ActionRecord, Agent
from loopline.agents.environments.puzzle_splits import Split, content_hash, draw_puzzles
from loopline.agents.records import JsonObject
from loopline.workers.openenv.client import OpenEnvError, Result, Server

PLAYER = "player"
URL_VARIABLE = "OPENENV_URL"
PROMPT = "You act in an environment. Read what it shows, and answer with your next action."
SHOWN_STEPS = 16
"""Number of most recent steps that the agent sees, in addition to the start."""
SHOWN_CHARS = 20_000
"""Longest text of one observation."""
TURNS = 10
"""Maximum number of actions in an episode, unless the way of playing sets another."""
_TRIES = 5_000
_DECODER = json.JSONDecoder()


class OpenEnvLevel(TurnLevel):
    """Settings of the episodes."""

    setting: TurnSetting = TurnSetting(turns=TURNS)
    reset: JsonObject = Field(default_factory=dict)
    """Arguments of the reset in addition to the seed."""
    solved_from: float = Field(default=1.0, ge=-1e9, le=1e9)
    """Smallest sum of rewards with which an episode is solved."""


class OpenEnvPuzzle(Conversation):
    """An episode of a server, by its seed."""

    setting: TurnSetting = TurnSetting(turns=TURNS)
    seed: int = Field(ge=0)
    reset: JsonObject = Field(default_factory=dict)
    solved_from: float = 1.0
    action_schema: JsonObject = Field(default_factory=dict)
    """JSON schema of an action, as the server published it."""
    beginning: str = ""
    """Hash of the first observation after the reset."""

    @property
    def content(self) -> str:
        """The identity of the puzzle: its reset."""
        return json.dumps({"seed": self.seed, "reset": self.reset}, sort_keys=True)

    @abstractmethod
    def results_of(self, actions: Sequence[ActionRecord]) -> list[Result]:
        """The results of the reset and of every action that could be parsed."""
        ...

    @abstractmethod
    def text_of(self, observation: JsonObject) -> str:
        """An observation as the agent sees it."""
        ...

    def observe(self, agent: Agent, actions: Sequence[ActionRecord]) -> str:
        results = self.results_of(actions)
        beginning = self.text_of(results[0].observation)
        if self.beginning and content_hash(beginning)[:16] != self.beginning:
            raise OpenEnvError(
                f"the server's first observation for seed {self.seed} differs from the one when "
                "the puzzle was drawn: a reset must depend only on its seed, and the server's "
                "version must not change"
            )
        readable = [action for action in actions if self.action_of(action.text) is not None]
        steps = [
            f"Action {number}: {json.dumps(self.action_of(action.text), ensure_ascii=False)}\n"
            f"{self._result_text(result)}"
            for number, (action, result) in enumerate(
                zip(readable, results[1:], strict=False), start=1
            )
        ]
        return "\n\n".join([beginning, *steps[-SHOWN_STEPS:], self._form()])

    def _result_text(self, result: Result) -> str:
        if result.refused:
            return f"It was refused: {result.refused}"
        return f"Reward {result.reward:g}.\n{self.text_of(result.observation)}"

    def _form(self) -> str:
        if field := _text_field(self.action_schema):
            return f"Answer with your action: the text of {field!r}, and nothing else."
        schema = json.dumps(_plain_schema(self.action_schema), ensure_ascii=False)
        return f"Answer with your action: one JSON object of this schema.\n{schema}"

    def action_of(self, text: str) -> JsonObject | None:
        """Parse a text as an action; None if it contains none."""
        return read_action(text, self.action_schema)

    def judge(self, agent: Agent, text: str, actions: Sequence[ActionRecord]) -> Judged:
        action = self.action_of(text)
        if action is None:
            return Judged(refusal="no_action", text="there is no action in the text")
        result = self.results_of([*actions, ActionRecord(agent, text)])[-1]
        if result.refused:
            return Judged(refusal="refused_action", text=result.refused)
        return Judged(
            score=min(1.0, max(0.0, result.reward)),
            action={"action": action, "reward": result.reward},
            text=self._result_text(result),
        )

    def reason(self, actions: Sequence[ActionRecord]) -> str:
        if not actions:
            return "nothing was done"
        total = sum(result.reward for result in self.results_of(actions)[1:])
        if total >= self.solved_from:
            return ""
        return f"the rewards add up to {total:g}, and {self.solved_from:g} solve it"

    def over(self, actions: Sequence[ActionRecord]) -> bool:
        return self.results_of(actions)[-1].done or not self.reason(actions)


def openenv_environment(
    name: str,
    title: str,
    url: str = "",
    *,
    prompt: str = PROMPT,
    show: Callable[[JsonObject], str] | None = None,
    **more: Any,
) -> Environment[OpenEnvLevel, OpenEnvPuzzle, ConversationEpisode]:
    """The environment of an OpenEnv server at `url`, by default at OPENENV_URL. `prompt` is the
    agent's instruction. `show` converts an observation to text, without parts that differ between
    two resets with one seed. `more` are further fields of `Environment`. The server is first
    contacted when it is needed."""

    def server() -> Server:
        where = url or os.environ.get(URL_VARIABLE, "")
        if not where:
            raise OpenEnvError(
                f"{name}: no server is set: set {URL_VARIABLE}=http://HOST:PORT, for workers too"
            )
        return _server_at(where)

    as_text = show or observation_text

    class Puzzle(OpenEnvPuzzle):
        def results_of(self, actions: Sequence[ActionRecord]) -> list[Result]:
            texts = (self.action_of(action.text) for action in actions)
            readable = [action for action in texts if action is not None]
            return server().play({**self.reset, "seed": self.seed}, readable)

        def text_of(self, observation: JsonObject) -> str:
            return as_text(observation)[:SHOWN_CHARS]

    def stream(split: Split, seed: int, level: OpenEnvLevel) -> Iterator[OpenEnvPuzzle]:
        def draw(rng: random.Random) -> OpenEnvPuzzle | None:
            puzzle = Puzzle(
                seed=rng.randrange(2**31),
                reset=level.reset,
                solved_from=level.solved_from,
                setting=level.setting,
            )
            return puzzle if puzzle.split is split else None

        for puzzle in draw_puzzles(name, split, seed, draw, _TRIES):
            try:
                beginning = puzzle.text_of(puzzle.results_of(())[0].observation)
                schema = server().action_schema()
            except OpenEnvError as error:
                raise ValueError(str(error)) from error
            yield puzzle.model_copy(
                update={"beginning": content_hash(beginning)[:16], "action_schema": schema}
            )

    def opened(puzzle: OpenEnvPuzzle) -> ConversationEpisode:
        return ConversationEpisode(puzzle, puzzle.setting.team or (PLAYER,))

    return Environment(
        name=name,
        title=title,
        agents=(AgentSpec(PLAYER, prompt),),
        difficulty=OpenEnvLevel,
        instance=cast("type[OpenEnvPuzzle]", Puzzle),
        stream=stream,
        open=opened,
        outside=True,
        **more,
    )


@cache
def _server_at(url: str) -> Server:
    return Server(url)


def observation_text(observation: JsonObject) -> str:
    """The text of an observation that contains nothing else; otherwise all of it as JSON."""
    filled = {name: value for name, value in observation.items() if value not in (None, "", [], {})}
    if len(filled) == 1 and isinstance(text := next(iter(filled.values())), str):
        return text
    return json.dumps(observation, ensure_ascii=False)


def read_action(text: str, schema: JsonObject) -> JsonObject | None:
    """The last JSON object of a text. If the schema has a single text field and no object fits it,
    the whole text is that field."""
    fields = _fields(schema)
    action = _last_object(text)
    if action is not None and (not fields or action.keys() <= {*fields, "metadata"}):
        return action
    if (field := _text_field(schema)) and text.strip():
        return {field: text.strip()}
    return action


def _last_object(text: str) -> JsonObject | None:
    last: JsonObject | None = None
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            last = cast(JsonObject, value)
        start = text.find("{", end)
    return last


def _fields(schema: JsonObject) -> JsonObject:
    """Return the properties of an action's schema, without those that every action has."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: field for name, field in properties.items() if name != "metadata"}


def _text_field(schema: JsonObject) -> str:
    """The name of an action's only field, if that is a text; otherwise empty."""
    fields = _fields(schema)
    if len(fields) != 1:
        return ""
    (name, field), *_ = fields.items()
    return name if isinstance(field, dict) and field.get("type") == "string" else ""


def _plain_schema(schema: JsonObject) -> JsonObject:
    """Return the schema of an action without the parts that are useless to a reader."""
    further = {name: value for name, value in schema.items() if name in ("required", "$defs")}
    return {"type": "object", "properties": _fields(schema), **further}


SERVER = openenv_environment("openenv", "OpenEnv")
"""The server at OPENENV_URL."""
