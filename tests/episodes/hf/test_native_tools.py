"""``tool_use.native``: the tokenizer's chat template describes tools and shows their results."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families import FAMILIES, make_tokenizer

from gem_core.episodes.data import Completion, FinishReason
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

ENV = {
    "id": "qa:Auction",
    "kwargs": {"answer_format": "boxed"},
    "tools": [{"name": "search", "topk": 1}, "python"],
    "tool_use": {"native": True},
}
HEAD = (
    "{% if tools %}{{ '<|im_start|>system\\nYou may call:\\n' }}"
    "{% for t in tools %}{{ t | tojson + '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
)
BODY = (
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "lot 1049"}}\n</tool_call>'


def recipe(**use):
    table = {**ENV, "tool_use": {**ENV["tool_use"], **use}}
    return recipe_from_dict({"name": "r", "env": [table], "context": {"template": "chat"}})


def tokenizer(chat=HEAD + BODY):
    return make_tokenizer(replace(FAMILIES["chatml"], chat=chat))


def act(machine, hf, text):
    ids = [*hf.encode(text, add_special_tokens=False), hf.convert_tokens_to_ids("<|im_end|>")]
    return machine.feed(Completion(ids, [-1.0] * len(ids), FinishReason.STOP))


def test_an_episode_is_the_templates_own_conversation():
    hf = tokenizer()
    machine = MachineFactory(recipe(), hf).train(0)
    functions = machine.env.functions
    prompt = machine.start()
    assert "You may use tools" not in machine.shown[0]

    def whole(messages):
        return hf.apply_chat_template(
            messages, tools=functions, tokenize=False, add_generation_prompt=True
        )

    messages = [{"role": "user", "content": machine.shown[0]}]
    assert hf.decode(prompt) == whole(messages)
    assert '"name": "search"' in hf.decode(prompt) and '"name": "python"' in hf.decode(prompt)
    for text in (CALL, '<tool_call>{"name": "python"}</tool_call>'):
        prompt = act(machine, hf, text)
        result = machine.shown[0]
        messages += [{"role": "assistant", "content": text}, {"role": "tool", "content": result}]
        assert machine.messages == messages
        assert hf.decode(prompt) == whole(messages)
        assert "<tool_response>" not in result
    assert messages[2]["content"] == "[1] Lot 1049: A silver bowl, sold for 798 crowns."
    assert "'code' is missing" in messages[4]["content"]
    assert act(machine, hf, "\\boxed{798}") is None
    (segment,) = machine.episode.segments
    trained = [t for t, on in zip(segment.token_ids, segment.loss_mask, strict=True) if on]
    assert "crowns" not in hf.decode(trained) and CALL in hf.decode(trained)
    assert [turn.info.get("role") for turn in machine.episode.turns] == ["tool", "tool", None]


def test_other_formats_are_no_calls():
    machine = MachineFactory(recipe(), tokenizer()).train(0)
    machine.start()
    assert act(machine, machine.context.tokenizer.hf, "<search>lot 1049</search>") is None
    assert machine.episode.turns[0].info["tool_calls"] == 0


def test_environments_without_tools_keep_their_template():
    tables = [ENV, {"id": "qa:Auction"}]
    mixed = recipe_from_dict({"name": "r", "env": tables, "context": {"template": "chat"}})
    factory = MachineFactory(mixed, tokenizer())
    prompts = {}
    for index in range(20):
        machine = factory.train(index)
        prompts["tools" if hasattr(machine.env, "tools") else "plain"] = machine.start()
        machine.abort()
    assert "You may call" in factory.tokenizer.hf.decode(prompts["tools"])
    assert "You may call" not in factory.tokenizer.hf.decode(prompts["plain"])


@pytest.mark.parametrize(
    "chat",
    [BODY, HEAD + "{% for m in messages %}{% if m.role == 'tool' %}"
     "{{ raise_exception('no tools') }}{% endif %}{% endfor %}" + BODY,
     HEAD + "{% for m in messages if m.role != 'tool' %}"
     "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"],
)  # fmt: skip
def test_a_template_without_a_place_for_tools_is_refused(chat):
    with pytest.raises(RecipeError, match=r"leave out tool_use\.native"):
        MachineFactory(recipe(), tokenizer(chat))


def test_native_goes_with_the_chat_template():
    with pytest.raises(RecipeError, match=r"env\.0\.tool_use\.native = True.*goes with context"):
        recipe_from_dict({"name": "r", "env": [ENV]})
