"""The learning rate of each of verl's optimizer steps, as the other trainers schedule it.

verl moves the rate once per batch, after its last optimizer step. The other trainers move it after
every optimizer step: a batch of several epochs or minibatches is trained with several rates.
verl's schedules with FSDP are functions of the number of batches, defined between whole numbers,
too: after ``n`` of a batch's ``N`` optimizer steps the rate is that of ``batches + n / N``.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch.optim.lr_scheduler import LambdaLR


def install(worker: Any) -> None:
    """Have a class of training workers move the rate after every optimizer step.

    Args:
        worker: ``verl.workers.engine_workers.TrainingWorker``.
    """
    original = worker.train_mini_batch

    @wraps(original)
    def train_mini_batch(self: Any, data: Any) -> Any:
        if not isinstance(self.engine.lr_scheduler, LambdaLR):  # Megatron's, set by [trainer.verl]
            return original(self, data)
        with RatePerStep(self.engine, _optimizer_steps(self.engine, data)):
            return original(self, data)

    worker.train_mini_batch = train_mini_batch


class RatePerStep:
    """Inside the block, one batch long, an engine of verl moves its rate after optimizer steps.

    verl's own scheduler makes the move that follows the last one.

    Args:
        engine: its ``optimizer_step`` is replaced, and put back.
        steps: optimizer steps of the batch.
    """

    def __init__(self, engine: Any, steps: int) -> None:
        self.engine = engine
        self.steps = steps
        self.done = 0
        self._step = engine.optimizer_step

    def __enter__(self) -> None:
        self.engine.optimizer_step = self._step_and_move

    def __exit__(self, *_: object) -> None:
        self.engine.optimizer_step = self._step

    def _step_and_move(self) -> Any:
        norm = self._step()
        self.done += 1
        if self.done < self.steps:
            scheduler = self.engine.lr_scheduler
            time = scheduler.last_epoch + self.done / self.steps
            groups = self.engine.optimizer.param_groups
            for group, base, factor in zip(
                groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
            ):
                group["lr"] = base * factor(time)
        return norm


def _optimizer_steps(engine: Any, data: Any) -> int:
    """Return the optimizer steps of a batch: epochs x minibatches, as verl divides it.

    Args:
        engine: what is trained.
        data: this process's rows, or (for a critic) what says where verl's transfer queue has them;
            the numbers that are not of a row are beside it then.
    """
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu

    def read(key: str, default: Any = None) -> Any:
        if isinstance(data, TensorDict):
            return tu.get(data, key=key, default=default)
        return data.extra_info.get(key, default)

    size = read("mini_batch_size")
    if size is None:
        minibatches = read("num_mini_batch")
    else:
        minibatches = len(data) * engine.get_data_parallel_size() // size
    return int(minibatches) * int(read("epochs", 1))
