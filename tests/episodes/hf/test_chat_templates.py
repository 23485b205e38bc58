"""``template = "chat"``: every family's actions end, and reach the environment whole."""

from __future__ import annotations

import json
import pickle

import pytest
from families import FAMILIES, make_tokenizer

from gem_core.episodes.context import TEMPLATES, Context, HFTokenizer, get_template
from gem_core.episodes.data import Completion, FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.errors import RecipeError
from gem_core.runs.generation_config import read_eos_ids
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory

FIRST = "guess a number\nfrom 1 to 9"


class Chat:
    """One machine with the chat template of a family, fed with texts."""

    def __init__(self, kit, family, *steps, folder=None, limits=None):
        self.family = FAMILIES[family]
        self.hf = make_tokenizer(self.family, str(folder or ""))
        if folder is not None:
            ids = [self.hf.convert_tokens_to_ids(t) for t in self.family.more_stops]
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
        self.template = get_template("chat", self.hf)
        self.tokenizer = HFTokenizer(self.hf, self.template, read_eos_ids(self.hf))
        env = kit.Script(*steps)
        env._reset = lambda options: (FIRST, {})
        context = Context(self.template, self.tokenizer)
        self.machine = EpisodeMachine(env, context, limits or Limits())
        self.env = env
        self.prompt = self.machine.start()

    def act(self, text, end=None, reason=FinishReason.STOP):
        """Sample ``text`` and the token ``end`` (``""`` = none); return the new prompt's ids."""
        ids = self.hf.encode(text, add_special_tokens=False)
        end = self.family.end if end is None else end
        ids += [self.hf.convert_tokens_to_ids(end)] if end else []
        self.prompt = self.machine.feed(Completion(ids, [-1.0] * len(ids), reason))
        return self.prompt

    def text(self, ids):
        return self.hf.decode(ids, skip_special_tokens=False)

    def rendered(self, *contents):
        roles = ("user", "assistant")
        messages = [{"role": roles[k % 2], "content": c} for k, c in enumerate(contents)]
        return self.hf.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_actions_reach_the_environment_and_the_history_is_the_templates_own(kit, family):
    """The eos token of the tokenizer is another one in half of the families."""
    chat = Chat(kit, family, kit.going("higher"), kit.going("lower"), kit.won())
    assert chat.text(chat.prompt) == chat.rendered(FIRST)
    lead = chat.family.lead
    chat.act(f"{lead}ok 5")
    assert chat.text(chat.prompt) == chat.rendered(FIRST, "ok 5", "higher")
    assert chat.prompt == chat.hf.encode(chat.text(chat.prompt), add_special_tokens=False)
    chat.act(f"{lead}ok 7")
    assert chat.text(chat.prompt) == chat.rendered(FIRST, "ok 5", "higher", "ok 7", "lower")
    chat.act(f"{lead}go 6")
    episode = chat.machine.episode
    assert chat.env.actions == [f"{lead}ok 5", f"{lead}ok 7", f"{lead}go 6"]
    assert episode.total_reward == 1.0
    assert [t.finish_reason for t in episode.turns] == [FinishReason.STOP] * 3
    assert len(episode.segments) == 1
    assert chat.hf.convert_tokens_to_ids(chat.family.end) in chat.tokenizer.stop_ids


@pytest.mark.parametrize("family", FAMILIES)
def test_an_action_that_was_cut_off_is_closed_as_the_template_closes_it(kit, family):
    chat = Chat(kit, family, kit.going("higher"), kit.won())
    chat.act(f"{chat.family.lead}ok 5", end="", reason=FinishReason.LENGTH)
    assert chat.text(chat.prompt) == chat.rendered(FIRST, "ok 5", "higher")
    assert chat.env.actions == [""]
    (segment,) = chat.machine._episode.segments
    _, start, end = segment.spans[0]
    assert segment.loss_mask[start:end] == [1] * (end - start)
    assert not any(segment.loss_mask[end:])


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if f.more_stops])
def test_all_end_tokens_of_the_generation_config_end_an_action(kit, family, tmp_path):
    for end in FAMILIES[family].more_stops:
        chat = Chat(kit, family, kit.going("higher"), kit.won(), folder=tmp_path)
        chat.act("ok 5", end=end, reason=FinishReason.LENGTH)  # at the cap, but it has ended
        assert chat.env.actions == ["ok 5"]
        assert chat.machine._episode.turns[0].finish_reason is FinishReason.STOP
        end_tokens = {chat.family.end, chat.family.eos, *chat.family.more_stops}
        assert chat.tokenizer.stop_ids == {chat.hf.convert_tokens_to_ids(t) for t in end_tokens}


def test_another_end_token_does_not_take_the_place_of_a_role_marker(kit, tmp_path):
    """GLM-4 closes no turn: after its eos token the next message still needs its beginning."""
    chat = Chat(kit, "glm4", kit.going("higher"), kit.won(), folder=tmp_path)
    assert chat.text(chat.act("ok 5")).endswith("ok 5<|user|>\nhigher<|assistant|>")
    chat = Chat(kit, "glm4", kit.going("higher"), kit.won(), folder=tmp_path)
    prompt = chat.act("ok 5", end="<|endoftext|>")
    assert chat.text(prompt).endswith("ok 5<|endoftext|><|user|>\nhigher<|assistant|>")


def test_the_engines_report_that_the_policy_stopped_is_trusted(kit):
    """It stopped at a token, or at a text, that is no stop token here."""
    for end in ("<|assistant|>", ""):
        chat = Chat(kit, "phi3", kit.going("higher"), kit.won())
        prompt = chat.act("ok 5", end=end)
        assert chat.env.actions == ["ok 5"]
        assert chat.machine._episode.turns[0].finish_reason is FinishReason.STOP
        expected = f"ok 5{end}<|end|>\n<|user|>\nhigher<|end|>\n<|assistant|>\n"
        assert chat.text(prompt).endswith(expected)


def test_a_chat_template_that_ends_no_turn_is_refused():
    family = FAMILIES["chatml"]
    hf = make_tokenizer(family)
    hf.chat_template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}assistant: "
    )
    with pytest.raises(RecipeError, match=r"ends an action with '.nuser: '.* choose another"):
        get_template("chat", hf)


def test_a_tokenizer_without_any_end_is_refused():
    hf = make_tokenizer(FAMILIES["mistral"])
    hf.eos_token = None
    with pytest.raises(RecipeError, match="no eos token"):
        HFTokenizer(hf, TEMPLATES["no"])


def test_the_stop_ids_survive_pickling(tmp_path):
    ids = [7, 9]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    hf = make_tokenizer(FAMILIES["qwen3"], str(tmp_path))
    tokenizer = HFTokenizer(hf, get_template("chat", hf), read_eos_ids(hf))
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.stop_ids == tokenizer.stop_ids >= {7, 9}
    assert copy.encode("ok<|im_end|>") == tokenizer.encode("ok<|im_end|>")


# -- templates that drop earlier thinking -----------------------------------------------------

THOUGHT = "<think>\ngo on\n</think>\n\nok 5"


def test_dropped_thinking_begins_a_segment_and_other_turns_do_not(kit):
    steps = [kit.going(f"o{k}", 0.25) for k in range(4)]
    chat = Chat(kit, "qwen3", *steps, kit.won())
    prompts = [chat.prompt]
    for action in ("ok 1", THOUGHT, "ok 2", "ok 3", THOUGHT):
        prompts.append(chat.act(action))
    contents = [FIRST, "ok 1", "o0", THOUGHT, "o1", "ok 2", "o2", "ok 3", "o3"]
    for number, prompt in enumerate(prompts[:-1]):
        assert chat.text(prompt) == chat.rendered(*contents[: 2 * number + 1])
    episode = chat.machine.episode
    assert [[turn for turn, _, _ in s.spans] for s in episode.segments] == [[0, 1], [2, 3, 4]]
    for segment in episode.segments:
        trained = [i for i, m in zip(segment.token_ids, segment.loss_mask, strict=True) if m]
        sampled = [segment.token_ids[start:end] for _, start, end in segment.spans]
        assert trained == [i for ids in sampled for i in ids]
        assert [bool(lp) for lp in segment.logprobs] == [bool(m) for m in segment.loss_mask]
    sampled = [chat.text(episode.segments[s].token_ids[a:b]) for s, _, a, b in episode.spans()]
    assert sampled == [f"{a}<|im_end|>" for a in ("ok 1", THOUGHT, "ok 2", "ok 3", THOUGHT)]
    assert "go on" in chat.text(episode.segments[0].token_ids)
    assert "go on" not in chat.text(prompts[2]) and episode.total_reward == 2.0


def test_the_state_at_a_cut_is_the_prompt_without_the_thinking(kit):
    steps = [kit.going(f"o{k}") for k in range(4)]
    cut = Chat(kit, "qwen3", *steps, limits=Limits(max_turns=1))
    free = Chat(kit, "qwen3", *steps)
    for chat in (cut, free):
        chat.act(THOUGHT)
    assert cut.machine.episode.stop_reason is StopReason.TRUNCATED_TURNS
    assert cut.machine.bootstrap_state() == free.prompt == cut.machine.bootstrap_state()


def test_only_templates_that_rewrite_are_rendered_again(kit):
    for name, family in FAMILIES.items():
        template = get_template("chat", make_tokenizer(family))
        assert (template.renderer is not None) == family.rewrites, name


def test_a_generation_prompt_that_opens_the_thinking_is_noticed():
    hf = make_tokenizer(FAMILIES["qwen3"])
    hf.chat_template = FAMILIES["qwen3"].chat.replace(
        "'<|im_start|>assistant\\n' }}", "'<|im_start|>assistant\\n<think>\\n' }}"
    )
    template = get_template("chat", hf)
    assert template.first.endswith("<think>\n") and template.renderer is not None


def test_a_factory_says_whether_an_episode_may_have_several_sequences():
    recipe = load_recipe("guess-the-number-easy", "tiny", ["context.template=chat"])
    hf = make_tokenizer(FAMILIES["qwen3"])
    assert MachineFactory(recipe, hf).several_segments
    chatml = make_tokenizer(FAMILIES["chatml"])
    assert not MachineFactory(recipe, chatml).several_segments
    last = load_recipe("guess-the-number-easy", "tiny", ["context.history=last"])
    assert MachineFactory(last, chatml).several_segments
    assert pickle.loads(pickle.dumps(MachineFactory(recipe, hf))).template.renderer is not None
