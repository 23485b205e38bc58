"""The tables of a recipe as classes: keys, types, defaults, and what each key means.

``docs/recipes.md`` is generated from them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gem_core.episodes.compact import PROMPT
from gem_core.episodes.context import History
from gem_core.runs.recipe.ranges import (
    AtLeastOne,
    AtLeastZero,
    DecayRate,
    Finite,
    NotNegative,
    Positive,
    PositiveShare,
    Text,
    TopK,
    UnitInterval,
    VocabSize,
)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables of a recipe: immutable; unknown keys are errors."""


class ToolUse(Table, frozen=True, kw_only=True):
    """What the agent may use the tools of an environment for; goes with ``tools`` of that table."""

    calls: AtLeastZero = 8
    """Calls in one episode; an action with a further call goes to the environment as it is."""
    per_turn: AtLeastOne = 1
    """Calls in one action; what follows them is not read."""
    output_tokens: AtLeastOne = 512
    """Tokens of one result; the middle of a longer one is left out."""
    seconds: Positive = 60.0
    """Wall seconds of all calls of one episode together."""
    call_reward: Finite = 0.0
    """Reward for each call that succeeds, added to the environment's own."""
    failed_call_reward: Finite = 0.0
    """Reward for each call that fails."""
    end_on_failure: bool = False
    """Whether a failed call ends the episode, without success."""
    instructions: bool = True
    """Whether the first observation describes the tools."""
    native: bool = False
    """Whether the tokenizer's own chat template describes the tools instead, and shows their
    results as messages of the role ``tool``; calls are JSON in ``<tool_call>``. Goes with
    ``context.template = "chat"``."""
    answer_format: Literal["tag", "boxed"] | None = None
    """How the agent writes its answer; it is then passed on in the environment's own format.
    ``None`` = actions are passed on as they are."""


class EnvConfig(Table, frozen=True, kw_only=True):
    """One environment of the training, or, as ``[[eval.env]]``, of the evaluation."""

    id: Text
    """Registered id, see ``gem-core list``."""
    kwargs: dict[str, Any] = {}
    """Parameters that override the id's own."""
    weight: Positive = 1.0
    """Share of the training episodes, relative to the weights of the other environments; an
    evaluation plays its environments in turn."""
    max_turns: AtLeastOne | None = None
    """Turn limit that is not part of the task; ``None`` = no such limit."""
    tools: list[str | dict[str, Any]] | None = None
    """Tools that the agent may call: names, or tables of a ``name`` and options of the tool,
    ``tools = ["search", {name = "python", seconds = 2.0}]``. ``[]`` takes away those of a
    recipe."""
    tool_use: ToolUse = ToolUse()


class CustomTemplate(Table, frozen=True, kw_only=True):
    """The texts of ``context.template = "custom"``, for models that no built-in one fits.

    Special tokens are written as the tokenizer spells them. A bos token that the tokenizer puts
    before every text is added."""

    first: Text = "{observation}"
    """The prompt of the first turn; ``{observation}`` stands once in it."""
    next: Text = "\n{observation}\n"
    """The text after an action; ``{observation}`` stands once in it."""
    close: str = ""
    """The token that ends an action; empty: the tokenizer's eos token alone ends one."""


class CompactConfig(Table, frozen=True, kw_only=True):
    """When and how ``context.history = "compact"`` asks the policy for a summary of its turns."""

    budget: AtLeastOne | None = None
    """Tokens that a prompt may have: instead of a longer one the policy gets the request, and the
    next one has the first observation, the summary and the last observation."""
    prompt: Text = PROMPT
    """The request, in the place of an observation."""
    max_tokens: AtLeastOne | None = None
    """Tokens of a summary, at most ``limits.max_tokens_per_turn``; ``None`` = as many."""
    trained: bool = True
    """Whether a summary is a turn that is trained on, with reward 0 and its later return."""


class ContextConfig(Table, frozen=True, kw_only=True):
    """How observations become prompts."""

    template: str = "qwen3_general"
    """``qwen3_game``, ``qwen3_general``, ``code``, ``no``, ``chat`` (the tokenizer's own; where it
    drops earlier thinking, a new token sequence begins), or ``custom``: the texts of
    ``[context.custom]``."""
    custom: CustomTemplate = CustomTemplate()
    history: History = "append"
    """``append`` extends one token sequence; ``compact`` begins another with the policy's summary
    when the prompt passes a budget; the others rewrite the prompt in each turn."""
    window: AtLeastOne | None = None
    """Turns kept by ``history = "window"``."""
    compact: CompactConfig = CompactConfig()
    system: str | None = None
    """System message, for ``template = "chat"``."""


class TinyConfig(Table, frozen=True, kw_only=True):
    """The embedded tiny model and its warm start (behaviour cloning of a noisy scripted player)."""

    layers: AtLeastOne = 2
    """Decoder layers."""
    hidden: AtLeastOne = 64
    """Hidden size; a multiple of twice ``heads``."""
    heads: AtLeastOne = 4
    """Attention heads."""
    vocab: VocabSize = 1024
    """Upper bound of the BPE vocabulary."""
    max_positions: AtLeastOne = 1024
    """Longest sequence in tokens."""
    warm_start_steps: AtLeastZero = 200
    """Optimizer steps of the warm start; 0 = keep the random initialisation."""
    warm_start_batch: AtLeastOne = 32
    """Expert episodes per warm-start step."""
    warm_start_lr: Positive = 5e-3
    """Peak learning rate of the warm start; it warms up, then decays to zero."""
    expert_noise: UnitInterval = 0.5
    """Probability that an action of the teacher is replaced by one of ``habit``."""
    habit: Text = "random"
    """The scripted player whose actions replace the teacher's in ``expert_noise`` of the turns. If
    it plays one action in each position and ``expert_noise`` is above 0.5, that action is the
    likeliest: greedy play is the habit, and the teacher's skill shows only in samples."""
    teacher: Text = "expert"
    """The scripted player that the warm start imitates: ``expert``, ``random``, or a weak player of
    the environments, ``within-hints`` for GuessTheNumber; an unknown name is answered with those
    that there are."""
    corpus: Literal["games", "own"] = "games"
    """Text on which the tokenizer is trained: five fixed games, so that recipes share one
    tokenizer, or the recipe's own environments, whose prompts are then short in tokens."""
    pieces: Literal["digits", "cells", "numbers", "integers", "letters"] = "digits"
    """What the tokenizer keeps apart from its neighbours: digits; also the cells of a board, with
    the blank before each; whole numbers, as the cells of a board; whole numbers wherever they
    are, so that a common one is one token; also quoted letters and single letters of words in
    quotes."""


class WarmStart(Table, frozen=True, kw_only=True):
    """Behaviour cloning of a scripted player before training, for any causal language model but the
    tiny one, which has its own keys."""

    steps: AtLeastZero = 0
    """Optimizer steps; 0 = none."""
    batch: AtLeastOne = 8
    """Episodes per step; ``batch.micro_batch`` sequences go through the model together."""
    lr: Positive = 5e-5
    """Peak learning rate; it rises over ``warmup`` steps, then decays to zero."""
    warmup: AtLeastZero = 5
    """Steps over which the learning rate rises."""
    teacher: Text = "random"
    """The scripted player that is imitated: ``random`` (legal actions), ``expert``, or a weak
    player of the environments."""
    noise: UnitInterval = 0.0
    """Probability that an action of the teacher is replaced by one of ``habit``."""
    habit: Text = "random"
    """The scripted player of the replaced actions."""


class LoraConfig(Table, frozen=True, kw_only=True):
    """Low-rank adapters: only they are trained, and the exported model has them merged."""

    rank: AtLeastZero = 0
    """Rank of the adapters; 0 = none, all weights are trained."""
    alpha: Positive = 32.0
    """The product of the adapters' matrices is multiplied by ``alpha / rank``."""
    targets: tuple[Text, ...] = ()
    """Names of the modules that get adapters, ``["q_proj", "v_proj"]``; empty = all linear layers
    but the output head."""


class ModelConfig(Table, frozen=True, kw_only=True):
    """The model that is trained."""

    path: Text = "tiny"
    """``tiny``, a Hugging Face id, or a local directory."""
    revision: Text | None = None
    """Commit, tag or branch of a Hugging Face id."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the weights in training and evaluation."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, more time."""
    warm_start: WarmStart = WarmStart()
    lora: LoraConfig = LoraConfig()
    tiny: TinyConfig = TinyConfig()
    """Used only if ``path = "tiny"``."""


class AlgorithmConfig(Table, frozen=True, kw_only=True):
    """Estimator, loss and optimizer."""

    estimator: str = "rebn"
    """Registered advantage estimator, see ``docs/advantages.md``."""
    options: dict[str, Any] = {}
    """Options of the estimator."""
    gamma: UnitInterval = 1.0
    """Discount per turn."""
    lam: UnitInterval = 0.95
    """Lambda of GAE, per turn."""
    clip_low: PositiveShare = 0.2
    """PPO clip, lower side; see ``clip_high``."""
    clip_high: Positive = 0.2
    """PPO clip: the ratio is kept in [1 - clip_low, 1 + clip_high]."""
    kl_coef: NotNegative = 0.0
    """Weight of the KL term against the initial model; 0 = no reference model."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Whether the KL term is added to the loss or subtracted from the reward."""
    entropy_coef: NotNegative = 0.0
    """Weight of the entropy bonus per action token."""
    rollout_correction: Literal["none", "tis"] = "none"
    """Correction for an engine whose probabilities are not quite the trainer's: ``"tis"``,
    truncated importance sampling, multiplies the policy loss of each action token by
    min(p_trainer / p_engine, ``rollout_cap``), where p_trainer is that before the step's first
    update. Both must be probabilities among the same tokens: with ``sampling.top_p`` or
    ``sampling.top_k`` set ``sampling.support = "drawn"``."""
    rollout_cap: Positive = 2.0
    """Largest weight of a token with ``rollout_correction``."""
    epochs: AtLeastOne = 1
    """Passes over each batch."""
    minibatches: AtLeastOne = 1
    """Optimizer steps per pass."""
    loss_aggregation: Literal["token", "sequence", "constant"] = "token"
    """Mean over all action tokens; mean per sequence, then over sequences; sum over a constant."""
    loss_constant: AtLeastOne | None = None
    """Divisor per sequence of ``loss_aggregation = "constant"``."""
    lr: Positive = 1e-6
    """Peak learning rate of AdamW."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows the warm-up: constant, or a decay to zero at the last step."""
    warmup_steps: AtLeastZero = 0
    """Training steps over which the learning rate rises from zero."""
    betas: tuple[DecayRate, DecayRate] = (0.9, 0.95)
    """AdamW's decay rates of the two moments."""
    weight_decay: NotNegative = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """The gradient's norm is clipped to this."""
    critic_lr: Positive | None = None
    """Learning rate of the critic, if the estimator needs one; ``None`` = ``lr``."""
    value_clip: Positive = 0.2
    """Critic: a new value beyond this distance from the old one gets no gradient that leads further
    away; a large number turns it off."""

    @property
    def schedule_name(self) -> str:
        """The schedule's name in transformers, which many trainers pass on to it."""
        return "constant_with_warmup" if self.lr_schedule == "constant" else self.lr_schedule


class BatchConfig(Table, frozen=True, kw_only=True):
    """How many episodes each training step collects."""

    episodes: AtLeastOne = 128
    """Episodes per step, over all ranks."""
    group_size: AtLeastOne = 1
    """Episodes that share an initial state (GRPO, RLOO)."""
    micro_batch: AtLeastOne | None = None
    """Sequences per forward pass; ``None`` = a whole minibatch."""
    max_tokens_per_device: AtLeastOne | None = None
    """Most tokens in one forward pass on one GPU, in place of ``micro_batch``, which then has no
    effect: as many sequences go in as fit, so that memory has a bound whatever their lengths.
    ``None`` = no such bound."""


class SamplingConfig(Table, frozen=True, kw_only=True):
    """How actions are sampled in training. ``top_k`` is that of every evaluation, too: before, in
    and after training, and by ``gem-core eval``; ``top_p`` is, unless ``eval.top_p`` is set."""

    temperature: Positive = 1.0
    """Divides the logits; must be positive."""
    top_p: PositiveShare = 1.0
    """Sample from the smallest set of tokens with this probability; 1 = off."""
    top_k: TopK = -1
    """Sample from this many most likely tokens; -1 = off."""
    support: Literal["all", "drawn"] = "all"
    """Tokens over which the trainer's probabilities are, where ``top_p`` or ``top_k`` cuts some
    off: ``all``, the whole vocabulary, as the trainers do by themselves, so that the loss is that
    of another policy than the one that sampled; ``drawn``, those that could be drawn in the token's
    place, as the engine reported them. The ratio, the KL term (the initial model over the same
    tokens), the entropy and ``algorithm.rollout_correction`` follow it; see
    ``docs/advantages.md``."""
    staleness: AtLeastZero = 0
    """How many training steps older than the newest weights those are that sample a batch; 0: the
    engine takes what it has. On a CPU, whose engine keeps old weights: a study of asynchronous
    training that repeats to the digit. See ``docs/advantages.md``."""
    refresh_turns: AtLeastZero = 0
    """With ``staleness``: after so many turns an episode under way goes on with the weights of the
    next step, up to the newest; 0: never."""

    @property
    def truncated(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.top_p < 1 or self.top_k != -1


class EvalConfig(Table, frozen=True, kw_only=True):
    """Evaluation, on seeds that training does not use. Where it plays the data that are trained on,
    a tenth of the questions is held out for it (``kwargs.held_out`` of the environment; all
    questions on both sides with ``kwargs.part = "all"``); another split is played as a whole. The
    tasks of games and of ``rg:`` are drawn by seeds, and small ones give the same task for many:
    ``eval_tasks`` in ``result.json`` counts those that training plays, too. With their
    ``kwargs.held_out`` that is none."""

    env: list[EnvConfig] = msgspec.field(default_factory=list)
    """The environments of the evaluation, one ``[[eval.env]]`` table each, which are played in
    turn; empty = those of ``[[env]]``."""
    episodes: AtLeastZero = 500
    """Evaluation episodes before and after training; 0 = none."""
    every: AtLeastZero = 0
    """Steps between evaluations during training; 0 = only before and after training."""
    inside_episodes: AtLeastOne = 64
    """Episodes of an evaluation during training."""
    temperature: NotNegative = 1.0
    """Sampling temperature; 0 = the most likely token. The rest of how evaluations sample is that
    of training, but for ``top_p``: ``sampling.top_k``, ``limits.max_tokens_per_turn``, and the stop
    tokens of ``context.template``."""
    top_p: PositiveShare | None = None
    """Sample from the smallest set of tokens with this probability; 1 = off, ``None`` =
    ``sampling.top_p``."""
    engine: Literal["hf", "trainer", "vllm", "sglang"] = "hf"
    """What plays the evaluations before and after training: ``hf``, gem_core's engine over
    transformers, in the launcher's process; ``vllm`` and ``sglang``, in processes of their own, one
    for each GPU of a node, which end before training begins; ``trainer``, so with the engine that
    the trainer has by ``hardware.engine``. See ``docs/evaluation.md``. Evaluations during training
    go through the trainer's engine."""
    greedy: bool = False
    """Play the evaluations before and after training a second time, with the most likely tokens.
    Nothing else changes; the outcomes are in ``outcomes.jsonl`` and ``result.json``."""


class TrainConfig(Table, frozen=True, kw_only=True):
    """Length of a run, checkpoints and logged episodes."""

    steps: AtLeastOne = 500
    """Training steps; each collects one batch."""
    start: AtLeastZero = 0
    """Training steps of the runs that this one continues; its tasks follow theirs."""
    save_every: AtLeastZero = 50
    """Checkpoint interval in steps; 0 = at the end only. A run that is killed loses the steps after
    its last checkpoint, up to this many; ``--resume`` trains them again. SIGTERM loses none: the
    run saves after the step under way and ends (see ``docs/runs.md``)."""
    save_minutes: NotNegative = 30.0
    """A checkpoint is also written after the first step that ends this many minutes after the last
    one; 0 = off."""
    keep_checkpoints: AtLeastOne = 2
    """Number of newest checkpoints that are kept."""
    log_episodes: AtLeastZero = 4
    """Episodes written to ``episodes.jsonl.gz`` per step, and per evaluation inside training."""


class TrackConfig(Table, frozen=True, kw_only=True):
    """Experiment trackers that a run's metrics are sent to; ``metrics.jsonl`` is always written."""

    to: list[Literal["tensorboard", "wandb", "mlflow", "trackio"]] = []
    """Trackers, which get the same names from every trainer. Their own variables apply
    (``WANDB_MODE``, ``MLFLOW_TRACKING_URI``); TensorBoard's files are in the run directory."""
    project: Text = "gem-core"
    """Name under which the runs of one study are grouped."""


class WorkersConfig(Table, frozen=True, kw_only=True):
    """Where the environments of a run live, see ``docs/workers.md``."""

    backend: Literal["inline", "thread", "process", "ray", "server"] = "inline"
    """``inline``: in each process that plays, called in threads where they may block; ``thread``:
    all of them in threads; ``process``: in worker processes, which may crash or hang without harm
    and use other CPUs; ``ray``: in worker processes on the nodes of a Ray cluster; ``server``:
    behind environment servers (``gem-core serve``)."""
    address: str | tuple[Text, ...] | None = None
    """``server``: the server, ``http://127.0.0.1:8000``, or a list of several, which share the
    sessions; the token is in ``GEM_CORE_SERVER_TOKEN``. ``ray``: the cluster, ``host:6379`` or
    ``auto``; ``None`` = the one that the process belongs to (verl, OpenRLHF), else that of
    ``RAY_ADDRESS``, else a new one of this machine."""
    number: AtLeastOne | None = None
    """Worker processes of each process that plays; ``None`` = its CPUs, at most 8. Not with
    ``server``."""
    deadline_s: Positive = 60.0
    """Wall seconds of one call of an environment in a thread, a worker or a server, where
    ``limits.turn_deadline_s`` sets none."""
    restart: Literal["replay", "fail"] = "replay"
    """What becomes of the other episodes of a worker that ended, or of those whose connection to a
    server was lost between two calls: their seeds and actions are repeated elsewhere, or they fail
    as well."""
    max_restarts: AtLeastZero = 1000
    """Workers of one process that may be replaced before the run is stopped. Not with
    ``server``."""


class HardwareConfig(Table, frozen=True, kw_only=True):
    """The machines of a run."""

    device: Literal["cpu", "gpu"] = "gpu"
    """``cpu`` uses the adapter's CPU backend; it is refused on a machine with a GPU."""
    nodes: AtLeastOne = 1
    """Number of machines."""
    gpus_per_node: AtLeastOne = 1
    """GPUs of each machine; on a CPU, processes."""
    engine: Literal["default", "hf", "vllm", "sglang"] = "default"
    """Generation engine; ``default`` = the trainer's own default."""
    engine_tensor_parallel: AtLeastOne = 1
    """GPUs that share each layer of one generation engine."""
    tensor_parallel: AtLeastOne = 1
    """GPUs that share each layer of the model in training."""
    sequence_parallel: AtLeastOne = 1
    """GPUs that share the tokens of each sequence in training."""
    sharding: Literal["default", "none", "optimizer", "full"] = "default"
    """What the data-parallel GPUs divide among them: nothing, each has a whole copy; gradients and
    optimizer states (ZeRO stage 2); weights, too (ZeRO stage 3, FSDP). ``default`` = what the
    trainer does by itself."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What waits in the memory of the host between its uses: optimizer states, or weights, too."""

    @property
    def gpus(self) -> int:
        """Number of GPUs of all machines; on a CPU, of processes."""
        return self.nodes * self.gpus_per_node
