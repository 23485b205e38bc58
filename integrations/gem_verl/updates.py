"""What verl's optimizer steps saw: the metrics of an update that verl logs in another meaning.

verl logs means over forward passes, the entropy before the update, and the learning rate after it.
In a process with one of verl's training workers, the tensors of its loss are read here instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from gem_adapters.update_means import TOKENS, token_sums

PREFIX = "actor/gem/"
"""What common names begin with among verl's metrics of the policy's update."""
_FIELDS = (
    "response_mask",
    "old_log_probs",
    "advantages",
    "ref_log_prob",
    "rollout_log_probs",
)


def install(worker: Any) -> None:
    """Have a class of training workers note what the policy's loss computes.

    Args:
        worker: ``verl.workers.engine_workers.TrainingWorker``.
    """
    original = worker.set_loss_fn

    @wraps(original)
    def set_loss_fn(self: Any, loss_fn: Any) -> None:
        if isinstance(loss_fn, partial) and loss_fn.func is ppo_loss:
            loss_fn = partial(noted_loss, loss_fn)
            _report_used_rate(self.engine)
        original(self, loss_fn)

    worker.set_loss_fn = set_loss_fn


def noted_loss(
    loss: Callable[..., tuple[Any, dict[str, Any]]],
    *,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Return verl's loss and metrics of a forward pass, and the common ones.

    Args:
        loss: verl's, with its configuration.
        model_output: log-probabilities and entropies, as verl packs them.
        data: the forward pass.
        dp_group: verl's.
    """
    value, metrics = loss(model_output=model_output, data=data, dp_group=dp_group)
    logprobs = no_padding_2_padding(model_output["log_probs"], data)
    entropy = model_output.get("entropy")
    if entropy is not None:
        entropy = no_padding_2_padding(entropy, data)
    fields = data.select(*(name for name in _FIELDS if name in data)).to_padded_tensor()
    config = loss.keywords["config"]  # type: ignore[attr-defined]
    sums = token_sums(
        (config.clip_ratio_low, config.clip_ratio_high),
        mask=fields["response_mask"],
        logprobs=logprobs,
        old=fields["old_log_probs"],
        advantages=fields["advantages"],
        entropy=entropy,
        initial=fields.get("ref_log_prob"),
        rollout=fields.get("rollout_log_probs"),
    )
    del sums[TOKENS]
    # verl adds the shares of an optimizer step's forward passes, and averages them over the ranks.
    share = data["dp_size"] / max(float(data["batch_num_tokens"]), 1.0)
    for name, number in sums.items():
        metrics[PREFIX + name] = Metric(value=number * share, aggregation=AggregationType.SUM)
    return value, metrics


def _report_used_rate(engine: Any) -> None:
    """Have an engine of verl report the learning rate that was used, not the next one."""
    step = engine.lr_scheduler_step

    def lr_scheduler_step() -> Any:
        used = engine.optimizer.param_groups[0]["lr"]
        step()
        return used

    engine.lr_scheduler_step = lr_scheduler_step
