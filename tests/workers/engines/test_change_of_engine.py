"""A conversation continues with another engine than it started with."""

from __future__ import annotations

import pytest

from loopline.agents.records import ToolCall
from loopline.agents.roles.conversation import assistant_message
from loopline.workers.engines.openai.wire import request_body
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.text.chat_prompt import template_messages
from loopline.workers.engines.text.tool_markup import write_tool_call
from tests.agents.conversations import says
from tests.workers.engines.asking import request


@pytest.mark.parametrize("local_first", [True, False])
def test_a_conversation_can_move_between_an_endpoint_and_a_local_engine(local_first: bool) -> None:
    """A run is forked to another model: its calls appear once in the history, in either form."""
    markup = write_tool_call("calculate", {"expression": "3 * 4"})
    call = ToolCall(id="c", name="calculate", arguments={"expression": "3 * 4"}, raw_arguments="{}")
    message = assistant_message(says(f"Next.\n{markup}" if local_first else "Next.", call))
    remote = str(request_body(request([message]), ModelSettings(engine="openai", model="m")))
    [at_home] = template_messages([message])
    assert remote.count("3 * 4") == 1
    assert str(at_home).count("3 * 4") == 1
    assert ("tool_calls" in at_home) != local_first
