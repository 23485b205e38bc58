"""`walkthrough.ipynb` as a script; ``scripts/notebook.py`` makes the notebook of its cells."""

# %% [markdown]
# # From one turn to a training loop
#
# An environment, its episodes, their advantages, and a small model that plain PyTorch trains: ten
# minutes on a CPU. It needs `pip install 'gem-core[trl,plot]'`, and downloads nothing.
# `SETTINGS` are keys of a recipe, as of `gem-core train --set`; the environment variables are for
# those who run this without editing it. The plots are also written to `OUT`.

# %%
import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

import gem_core
from gem_core.episodes.templates import get_template
from gem_core.policies.engine.policy import HFPolicy
from gem_core.training.tiny import model_path

ENV = "game:GuessTheNumber-v0-easy"
SETTINGS = ["train.steps=24", "batch.episodes=192", "eval.episodes=300"]
SETTINGS += os.environ.get("WALKTHROUGH_SET", "").split()
OUT = Path(os.environ.get("WALKTHROUGH_OUT", "runs/walkthrough"))
OUT.mkdir(parents=True, exist_ok=True)
# Text in the pictures stays text, and the same numbers give the same file.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "walkthrough"})

# %% [markdown]
# ## 1. Two turns by hand
#
# `make` returns an environment. `reset` says the rules; `step` takes what a policy wrote, the whole
# text, and returns an observation, a reward, and whether the episode is over. `make_vec` puts many
# environments behind one `reset` and one `step`.

# %%
env = gem_core.make(ENV)
observation, info = env.reset(seed=3)
print(observation)
for action in ("\\boxed{5}", "I think that it is \\boxed{9}."):
    observation, reward, terminated, truncated, info = env.step(action)
    print(f"> {action}\n  reward {reward:g}, over: {terminated or truncated}\n{observation}")
env.close()

with gem_core.make_vec(ENV, 4) as envs:
    envs.reset(seed=7)
    steps = envs.step([f"\\boxed{{{guess}}}" for guess in (2, 4, 6, 8)])
print(*steps.obs, steps.rewards, sep="\n")

# %% [markdown]
# ## 2. An episode, and the rewards of its turns
#
# Between environment and policy stands an `EpisodeMachine`. It asks for one action after the other
# and records what happened as an `Episode`. A `Context` makes the prompts: here a chat template
# without a tokenizer, so that prompts and actions are text. The number is 8: three turns bring
# nothing, and the last guess, 7, is near it and earns a part.

# %%
context = gem_core.Context(get_template("qwen3_game"))
machine = gem_core.EpisodeMachine(gem_core.make(ENV), context, seed=3)
machine.start()
for guess in (5, 2, 10, 7):
    machine.feed(gem_core.Completion([], text=f"\\boxed{{{guess}}}"))
for turn in machine.episode.turns:
    print(f"turn {turn.index + 1}: {turn.action}, reward {turn.reward:.2f}")
print(f"{machine.episode.stop_reason.value}, success: {machine.episode.success}")

# %% [markdown]
# ## 3. Many episodes at once, and a policy
#
# Whole episodes are played by `play_many`, with a policy: an object whose `complete` answers a
# request. None of the episodes waits for another. A recipe says what to play: the environment, the
# limits, and the tasks of each training step, which a `MachineFactory` makes machines of. Here are
# two policies that never read a hint, to know later what can be had without reading:


# %%
class Guesses:
    """A policy that writes the number which ``choose`` names for a request."""

    def __init__(self, choose):
        self.choose = choose

    async def complete(self, request):
        """Answer one request; its seed makes the draws of each turn repeatable."""
        return gem_core.Completion([], text=f"\\boxed{{{self.choose(request)}}}")


def wait_for(coroutine):
    """Return its result. In a thread, as a notebook's own thread runs an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def success(episodes):
    """Return the share of the episodes that solved their task."""
    return float(np.mean([episode.success for episode in episodes]))


def evaluation(factory):
    """Return new machines for the episodes of the evaluation, the same tasks at each call."""
    return [factory.evaluation(number) for number in range(recipe.eval.episodes)]


random_player = Guesses(lambda request: Random(request.seed).randint(1, 10))
four_numbers = Guesses(lambda request: (2, 4, 6, 8)[request.machine.turn])
recipe = gem_core.load_recipe("guess-the-number-easy", "tiny", SETTINGS)
factory = gem_core.MachineFactory(recipe)
controls = {}
for name, policy in (("random player", random_player), ("2, 4, 6, 8 always", four_numbers)):
    controls[name] = success(wait_for(gem_core.play_many(evaluation(factory), policy)))
print(controls)

# %% [markdown]
# ## 4. Returns and advantages
#
# The **return** of a turn is its reward, plus gamma times the return of the next turn. An estimator
# makes one **advantage** per turn. Here are three for the same eight episodes of the random player:
# two tasks, each played four times, as GRPO needs it.
#
# - **REINFORCE** takes the return as it is. It is not negative here: no action is made less likely.
# - **ReBN** takes the mean of all turns of the batch away and divides by their standard deviation.
#   Turns of one episode differ: the nearer to the reward, the more credit.
# - **GRPO** compares the episodes of one task, and gives all turns of an episode the same.

# %%
eight = ["batch.episodes=8", "batch.group_size=4"]
grouped = gem_core.load_recipe("guess-the-number-easy", "tiny", eight)
machines = [gem_core.MachineFactory(grouped)(task) for task in gem_core.step_tasks(grouped, 0)]
episodes = wait_for(gem_core.play_many(machines, random_player))
rewards = [episode.rewards for episode in episodes]
batch = gem_core.TurnBatch.from_episodes(rewards, [episode.group for episode in episodes])
rows = {"reward": batch.rewards}
for label in ("REINFORCE", "ReBN", "GRPO"):
    rows[label] = gem_core.compute_advantages(label.lower(), batch, gamma=0.9)
places = np.arange(len(batch)) + 0.8 * batch.episode + 1.5 * batch.group
solved = np.array([episodes[number].success for number in batch.episode])
figure, axes = plt.subplots(len(rows), sharex=True, figsize=(9, 6), layout="constrained")
for axis, (label, values) in zip(axes, rows.items(), strict=True):
    axis.bar(places, values, color=np.where(solved, "#4f9d69", "#c8553d"))
    axis.axhline(0, color="#222222", linewidth=0.8)
    axis.set_ylabel(label)
middles = [part.mean() for part in batch.by_episode(places).values()]
axes[-1].set_xticks(middles, [f"task {episode.group + 1}" for episode in episodes])
axes[0].set_title("Each bar is a turn; green: its episode found the number. gamma = 0.9")
figure.savefig(OUT / "walkthrough-advantages.svg", metadata={"Date": None})

# %% [markdown]
# ## 5. A training loop
#
# The model is tiny: two layers, and a warm start in which it imitated a poor player. It is built at
# the first use, in less than a minute, and kept. First it is measured: sampled, and greedy, always
# with the most likely token.
#
# With a tokenizer an episode is also a row of tokens, its **segment**: rules, guess, hint, guess
# and so on, with a mask that tells the sampled tokens from those that were read. The sampled ones
# are trained on, each with the advantage of its turn. A step of the loop plays new episodes with
# the weights of this moment, and then updates these by PPO's clipped objective.

# %%
torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
folder = model_path(recipe)
model = AutoModelForCausalLM.from_pretrained(folder)
factory = gem_core.MachineFactory(recipe, AutoTokenizer.from_pretrained(folder))


def evaluate(temperature):
    """Return the success of the model as it is now, on the episodes of the evaluation."""
    policy = HFPolicy(model, factory.stop_ids, temperature=temperature)
    return success(gem_core.play_batch(evaluation(factory), policy))


controls |= {"warm start, sampled": evaluate(1.0), "warm start, greedy": evaluate(0.0)}

# %%
algorithm = recipe.algorithm
optimizer = torch.optim.AdamW(model.parameters(), algorithm.lr, algorithm.betas, weight_decay=0)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.train.steps)
player = HFPolicy(model, factory.stop_ids)
curve = []
for step in range(recipe.train.steps):
    tasks = gem_core.step_tasks(recipe, step)
    episodes = gem_core.play_batch([factory(task) for task in tasks], player)
    curve.append(success(episodes))
    print(f"step {step + 1:2d} success {curve[-1]:.2f} " + "#" * round(40 * curve[-1]))

    # An episode whose environment failed is kept as a record, but nothing is learned from it.
    episodes = [episode for episode in episodes if not episode.stop_reason.failed]
    batch = gem_core.TurnBatch.from_episodes([episode.rewards for episode in episodes])
    per_turn = gem_core.compute_advantages("rebn", batch, gamma=algorithm.gamma)

    # Rows [episodes, tokens], then numbers of the sampled tokens alone, one after the other.
    rows = [episode.segments[0] for episode in episodes]
    ids = pad_sequence([torch.tensor(row.token_ids) for row in rows], batch_first=True)
    mask = pad_sequence([torch.tensor(row.loss_mask).bool() for row in rows], batch_first=True)
    drawn = pad_sequence([torch.tensor(row.logprobs) for row in rows], batch_first=True)[mask]
    lengths = torch.tensor([end - start for row in rows for _, start, end in row.spans])
    advantages = torch.tensor(per_turn).repeat_interleave(lengths).float()

    for _ in range(algorithm.epochs):
        logits = model(ids[:, :-1], use_cache=False).logits[mask[:, 1:]]  # t predicts t + 1
        new = logits.log_softmax(-1).gather(1, ids[mask][:, None])[:, 0]
        ratio = torch.exp(new - drawn)
        clipped = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
        optimizer.zero_grad()
        (-torch.minimum(ratio * advantages, clipped * advantages).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), algorithm.max_grad_norm)
        optimizer.step()
    schedule.step()

# %% [markdown]
# ## 6. What was learned
#
# The curve with the controls, and the trained model on the episodes of the evaluation. Training and
# evaluation hide the same ten numbers, and a fixed row of four guesses finds four of them: to find
# more, the hints must be used. One run, one seed; figures differ between processors and versions.

# %%
trained = {"trained, sampled": evaluate(1.0), "trained, greedy": evaluate(0.0)}
figure, axis = plt.subplots(figsize=(9, 4.5), layout="constrained")
axis.plot(range(1, len(curve) + 1), curve, color="#222222", label="episodes of training")
for number, (name, rate) in enumerate(controls.items()):
    axis.axhline(rate, linestyle="--", color=f"C{number}", label=f"{name}: {rate:.2f}")
for (name, rate), marker in zip(trained.items(), "os", strict=True):
    axis.plot([len(curve) + 1], [rate], marker, color="#222222", label=f"{name}: {rate:.2f}")
axis.set(xlabel="training step", ylabel="success", ylim=(0, 1.02))
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
figure.savefig(OUT / "walkthrough-curve.svg", metadata={"Date": None})
print(controls | trained)

# %% [markdown]
# ## 7. The same recipe in a trainer
#
# `run_experiment` gives the recipe to a released trainer: TRL takes two steps. Equal weights play
# equal tasks with equal random numbers: the first success is the loop's. Then the weights differ.

# %%
settings = [*SETTINGS, "train.steps=2", "eval.episodes=0"]
short = gem_core.load_recipe("guess-the-number-easy", "tiny", settings)
run = gem_core.run_experiment(short, "trl", OUT / "trl", "overwrite")
print("TRL:", [round(step["success/mean"], 4) for step in run.metrics()])
print("the loop above:", [round(rate, 4) for rate in curve[:2]])
