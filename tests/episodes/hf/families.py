"""Chat templates in the shapes of model families, each with a small tokenizer of its tokens.

The texts are written for these tests: they have the markers, the end of a turn and the treatment of
thinking of the family that they are named after, and nothing else of its template.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def _chatml(thinking: str = "{{ m.content }}") -> str:
    return (
        "{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\\n' }}"
        "{% if m.role == 'assistant' %}" + thinking + "{% else %}{{ m.content }}{% endif %}"
        "{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )


_DROPS = "{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
_LLAMA = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim }}"
    "{{ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
_GEMMA = (
    "{{ '<bos>' }}{% for m in messages %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{{ m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
_PHI = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
_GLM = (
    "{{ '[gMASK]<sop>' }}{% for m in messages %}"
    "{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_MISTRAL = (
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}"
    "{% endfor %}"
)
_DEEPSEEK = (
    "{{ '<|begin_of_sentence|>' }}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '<|User|>' + m.content }}{% else %}"
    "{{ '<|Assistant|>' + m.content + '<|end_of_sentence|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """One family: its chat template, tokens, and what must come out.

    Attributes:
        chat: the chat template.
        end: the token that ends an action.
        eos: the tokenizer's own eos token.
        special: the tokens with a meaning in the template.
        more_stops: further tokens that ``generation_config.json`` names.
        rewrites: whether earlier thinking is dropped.
        plain: added tokens that are not special.
        lead: white space that the model itself writes before an action.
    """

    chat: str
    end: str
    eos: str
    special: tuple[str, ...]
    more_stops: tuple[str, ...] = ()
    rewrites: bool = False
    plain: tuple[str, ...] = ()
    lead: str = ""


_IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
FAMILIES = {
    "chatml": Family(_chatml(), "<|im_end|>", "<|im_end|>", _IM),
    "qwen3-base": Family(_chatml(), "<|im_end|>", "<|endoftext|>", _IM),
    "qwen3": Family(
        _chatml(_DROPS), "<|im_end|>", "<|im_end|>", _IM, ("<|endoftext|>",),
        rewrites=True, plain=("<think>", "</think>"),
    ),
    "llama3": Family(
        _LLAMA, "<|eot_id|>", "<|end_of_text|>",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
         "<|end_of_text|>", "<|eom_id|>"),
        ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    "gemma3": Family(
        _GEMMA, "<end_of_turn>", "<eos>",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), ("<eos>", "<end_of_turn>"),
    ),
    "phi3": Family(
        _PHI, "<|end|>", "<|endoftext|>",
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
    ),
    "glm4": Family(
        _GLM, "<|user|>", "<|endoftext|>",
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
        ("<|endoftext|>", "<|user|>", "<|observation|>"), lead="\n",
    ),
    "mistral": Family(_MISTRAL, "</s>", "</s>", ("<s>", "</s>"), lead=" "),
    "deepseek": Family(
        _DEEPSEEK, "<|end_of_sentence|>", "<|end_of_sentence|>",
        ("<|begin_of_sentence|>", "<|end_of_sentence|>", "<|User|>", "<|Assistant|>"),
    ),
}  # fmt: skip


def make_tokenizer(family: Family, name_or_path: str = "") -> Any:
    """Return a byte-level tokenizer with the special tokens and the chat template of ``family``."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(letters)}
    merges = [("o", "k"), ("g", "o"), ("Ġ", "g"), ("Ċ", "Ċ"), ("<", "|"), ("|", ">")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in family.special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in family.plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=family.eos, clean_up_tokenization_spaces=False
    )
    fast.chat_template = family.chat
    fast.name_or_path = name_or_path
    return fast
