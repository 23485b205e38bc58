"""``gem-core doctor`` on machines that a test describes: what it says, and what fixes it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gem_core.runs.install import shell_block, stack, stacks
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import get_trainer, trainer_names
from gem_preflight.readiness.facts import Ask, Gpu, Torch
from gem_preflight.readiness.on_gpu import needed
from gem_preflight.readiness.verdict import CPU_STATE, GPU_STATE, examine

sys.path.insert(0, str(Path(__file__).parent))
from machines import H100, KERNELS, whole, without_gpu

BASELINE = "guess-the-number-easy"
NAMES = trainer_names()


def said(verdict) -> list[tuple[str, str]]:
    return [(problem.text, problem.fix) for problem in verdict.problems]


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_machine_is_ready_on_a_gpu(name):
    probe = whole(name)
    verdict = examine(name, probe)
    assert said(verdict) == []
    assert (verdict.device, verdict.state) == ("gpu", GPU_STATE)
    launch = get_trainer(name).launch.partition(":")[0]
    assert probe.imported == [*stack(name).imports, launch]  # nothing is ready unimported


@pytest.mark.parametrize("name", NAMES)
def test_without_a_gpu_it_is_ready_on_a_cpu_and_says_so(name):
    verdict = examine(name, without_gpu(name))
    assert said(verdict) == []
    assert (verdict.device, verdict.state) == ("cpu", CPU_STATE)
    asked = examine(name, without_gpu(name), Ask("gpu"))
    texts = [text for text, _ in said(asked)]
    assert "no GPU was found: nvidia-smi lists none; use a machine with one" in texts
    assert not asked.ready and asked.state == "not ready on GPU"


def test_vllm_of_the_wrong_version_on_eight_gpus():
    probe = whole("openrlhf", gpus=8)
    probe.versions["vllm"] = "0.31.0"
    assert said(examine("openrlhf", probe)) == [
        ("vllm is 0.31.0, but openrlhf 0.11.2 needs ==0.29.0", "pip install vllm==0.29.0")
    ]


def test_the_range_of_trl_is_a_range():
    for version, right in [
        ("0.21.0", False),
        ("0.22.0", True),
        ("0.31.0", True),
        ("0.32.0", False),
    ]:
        probe = whole("trl")
        probe.versions["vllm"] = version
        assert examine("trl", probe).ready is right, version


def test_torch_that_vllm_does_not_pin_is_named_with_both_that_need_another():
    probe = whole("verl")
    probe.versions["torch"] = "2.13.0"
    probe.torch_here = replace(probe.torch_here, version="2.13.0")
    assert said(examine("verl", probe)) == [
        (
            "torch is 2.13.0, but verl 0.9.1 needs ==2.11.0 and vllm 0.24.0 needs ==2.11.0",
            "pip install torch==2.11.0 packaging psutil ninja setuptools wheel",
        )
    ]


def test_flash_attn_that_was_built_for_another_torch():
    probe = whole("openrlhf")
    probe.built["flash-attn"] = "2.13"
    assert examine("openrlhf", probe).ready
    probe.versions["torch"] = "2.15.0"
    probe.torch_here = replace(probe.torch_here, version="2.15.0+cu130")
    probe.declares["vllm"] = ["torch==2.15.0"]
    assert said(examine("openrlhf", probe)) == [
        (
            "flash-attn 2.8.3 was built for torch 2.13, and torch is 2.15.0+cu130",
            "pip install flash-attn==2.8.3 --no-build-isolation --no-deps --force-reinstall "
            "--no-cache-dir",
        )
    ]


def test_what_cannot_be_imported_is_not_ready():
    probe = whole("rl2")
    probe.broken["flash_attn"] = "ImportError: undefined symbol: _ZN3c105ErrorC2E"
    ((text, fix),) = said(examine("rl2", probe))
    assert text == (
        "`import flash_attn` fails with ImportError: undefined symbol: _ZN3c105ErrorC2E"
    )
    assert fix.startswith("pip install flash-attn==2.8.3 --no-build-isolation --no-deps --force")
    probe = whole("trl")
    probe.broken["vllm:LLM"] = "ImportError: libcudart.so.13"
    ((text, fix),) = said(examine("trl", probe))
    assert (text, fix) == (
        "`import vllm` fails with ImportError: libcudart.so.13",
        "pip install vllm==0.29.0 aiohttp requests",
    )


@pytest.mark.parametrize("name", [name for name in NAMES if stack(name).flash_attn])
def test_flash_attn_is_missed_where_it_is_needed_and_nvcc_to_build_it(name):
    probe = whole(name)
    del probe.versions["flash-attn"]
    probe.here = replace(probe.here, nvcc=None)
    (text, fix), (compiler, toolkit) = said(examine(name, probe))
    assert text.startswith("flash-attn is not installed, but ")
    assert fix == stack(name).line_for("flash-attn")
    assert compiler.startswith("nvcc is not here, and ")
    assert toolkit == f"install the CUDA toolkit {probe.torch_here.cuda} and set CUDA_HOME to it"


def test_verl_needs_no_flash_attn_where_the_recipe_chooses_another_attention():
    known = stack("verl")
    less = needed(known, {f"+{known.attention}": "sdpa"})
    assert known.flash_attn and not less.flash_attn
    assert set(known.imports) - set(less.imports) == {"flash_attn"}
    assert set(known.watched) - set(less.watched) == {"flash-attn"}
    for native in ({}, {f"+{known.attention}": "flash_attention_3"}):
        assert needed(known, native) == known


def test_trl_needs_neither_flash_attn_nor_nvcc():
    probe = whole("trl")
    probe.here = replace(probe.here, nvcc=None)
    assert "flash-attn" not in probe.versions
    assert examine("trl", probe).ready


def test_deepspeed_needs_nvcc_of_the_major_version_of_torch():
    probe = whole("openrlhf")
    probe.here = replace(probe.here, nvcc="12.8")
    assert said(examine("openrlhf", probe)) == [
        (
            "nvcc is of CUDA 12.8, torch 2.13.0 of 13.0",
            "install the CUDA toolkit 13.0 and set CUDA_HOME to it",
        )
    ]
    probe.here = replace(probe.here, nvcc="13.1")
    assert examine("openrlhf", probe).ready


def test_torch_for_cpus_beside_gpus_is_one_problem():
    probe = whole("verl")
    probe.versions["torch"] = "2.11.0+cpu"
    probe.torch_here = Torch("2.11.0+cpu")
    ((text, fix),) = said(examine("verl", probe))
    assert text == "torch 2.11.0+cpu is a build for CPUs"
    assert fix.startswith("pip uninstall -y torch && pip install torch==2.11.0")


def test_torch_that_is_missing_is_one_problem_and_the_first():
    probe = whole("verl")
    del probe.versions["torch"], probe.versions["vllm"]
    probe.torch_here = None
    assert said(examine("verl", probe, Ask("gpu"))) == [
        ("torch is not installed", stack("verl").line_for("torch")),
        ("vllm is not installed, but verl 0.9.1 needs ==0.24.0", stack("verl").line_for("vllm")),
    ]


def test_a_driver_that_is_too_old_is_not_a_missing_gpu():
    probe = whole("trl")
    probe.torch_here = replace(
        probe.torch_here, gpus=(), error="The NVIDIA driver on your system is too old"
    )
    ((text, _),) = said(examine("trl", probe))
    assert text == (
        "torch 2.13.0 cannot use the GPU (The NVIDIA driver on your system is too old): install "
        "a driver for CUDA 13.0 or newer"
    )


def test_a_driver_that_does_not_work_is_not_a_missing_gpu():
    probe = without_gpu("trl")
    probe.here = replace(probe.here, driver_error="Driver/library version mismatch")
    texts = [text for text, _ in said(examine("trl", probe, Ask("gpu")))]
    assert "the driver does not work: nvidia-smi says Driver/library version mismatch" in texts


def test_torch_without_nccl():
    probe = whole("trl")
    probe.torch_here = replace(probe.torch_here, nccl=None)
    assert said(examine("trl", probe)) == [
        ("torch 2.13.0 has no NCCL", "pip install torch==2.13.0")
    ]


@pytest.mark.parametrize(
    ("gpu", "kernels", "expected"),
    [
        (Gpu("V100", 32 * 10**9, (7, 0)), ("sm_70",), "flash-attn needs 8.0 or more"),
        (Gpu("B200", 180 * 10**9, (10, 0)), KERNELS, "has no kernels for B200"),
        (Gpu("B200", 180 * 10**9, (10, 0)), (*KERNELS, "compute_90"), None),
        (Gpu("RTX 4090", 24 * 10**9, (8, 9)), KERNELS, None),
        (Gpu("B200", 180 * 10**9, (10, 0)), ("sm_80", "sm_90", "sm_100"), None),
    ],
)
def test_gpus_that_are_too_old_or_too_new(gpu, kernels, expected):
    probe = whole("rl2")
    probe.torch_here = replace(probe.torch_here, gpus=(gpu,), architectures=kernels)
    texts = [text for text, _ in said(examine("rl2", probe))]
    assert (texts == []) if expected is None else (len(texts) == 1 and expected in texts[0])


def test_oat_trains_on_gpus_with_python_310_only():
    probe = whole("oat")
    probe.here = replace(probe.here, python=(3, 11))
    ((text, fix),) = said(examine("oat", probe))
    assert text == "needs Python >=3.10,<3.11; this is 3.11"
    assert fix == " && ".join(shell_block("oat").splitlines())
    assert fix.startswith("python3.10 -m venv oat-env && . oat-env/bin/activate && pip install ")


def test_little_shared_memory():
    small = 64 * 10**6
    oat = whole("oat", gpus=1)
    oat.here = replace(oat.here, shm_bytes=small)
    assert said(examine("oat", oat)) == [
        ("/dev/shm has 0.06 GB; 5 are taken at start", "start the container with --shm-size=5g")
    ]
    eight = load_recipe(BASELINE, "paper", ["hardware.gpus_per_node=8"])
    verl = whole("verl")
    verl.here = replace(verl.here, shm_bytes=small)
    assert ("/dev/shm has 0.06 GB; NCCL needs 1", "start the container with --shm-size=10g") in (
        said(examine("verl", verl, Ask(recipe=eight)))
    )
    alone = examine("verl", verl)
    assert alone.ready and any("Ray then moves data through /tmp" in note for note in alone.notes)


def test_the_stand_ins_are_refused_beside_a_gpu_and_with_it_hidden_they_are_not():
    probe = whole("trl")
    assert said(examine("trl", probe, Ask("cpu"))) == [
        (
            "a GPU is present, and the stand-ins for CPUs are refused beside one",
            "export CUDA_VISIBLE_DEVICES=",
        )
    ]
    probe.here = replace(probe.here, hidden=True)
    probe.torch_here = replace(probe.torch_here, gpus=())
    assert examine("trl", probe).state == CPU_STATE
    assert ("CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES") in said(
        examine("trl", probe, Ask("gpu"))
    )


def test_a_trainer_that_is_missing_has_its_lines_for_each_device():
    nothing = without_gpu("trl")
    nothing.versions = {}
    assert said(examine("trl", nothing)) == [
        ("trl is not installed", "make env-trl    # in a checkout of gem-core")
    ]
    on_gpu = whole("trl")
    on_gpu.versions = {}
    assert said(examine("trl", on_gpu)) == [("trl is not installed", stack("trl").command)]
    assert nothing.imported == [] and on_gpu.imported == []


def test_another_version_of_the_trainer_is_all_that_is_said_of_packages():
    probe = whole("verl")
    probe.versions["verl"] = "0.8.0"
    probe.versions["vllm"] = "0.18.0"
    ((text, fix),) = said(examine("verl", probe))
    assert text == "verl 0.8.0 is outside the tested range >=0.9.1,<0.10"
    assert fix == stack("verl").command


def test_a_module_that_the_trainer_does_not_declare():
    probe = whole("verl")
    probe.absent = ("cachetools",)
    assert said(examine("verl", probe)) == [
        ("module cachetools is missing", "pip install 'gem-core[verl]'")
    ]


def recipe(*overrides: str):
    return load_recipe(BASELINE, "paper", overrides)


def test_a_recipe_that_fits_and_one_that_does_not():
    fits = examine("trl", whole("trl"), Ask(recipe=recipe("hardware.gpus_per_node=8")))
    texts = [text for text, _ in said(fits)]
    assert not any("GB on each GPU" in text for text in texts)
    small = whole("trl", gpus=1)
    small.torch_here = replace(
        small.torch_here, gpus=(Gpu("RTX 3090", 24 * 10**9, (8, 6)),), architectures=("sm_86",)
    )
    ask = Ask(recipe=recipe("hardware.gpus_per_node=1"))
    assert any("GB of 24 GB on each GPU" in text for text, _ in said(examine("trl", small, ask)))
    larger = replace(ask, gigabytes=80.0)
    texts = [text for text, _ in said(examine("trl", small, larger))]
    assert not any("on each GPU" in text for text in texts)


def test_a_recipe_that_wants_more_gpus_than_there_are():
    ask = Ask(recipe=recipe("hardware.gpus_per_node=8"))
    assert ("the recipe wants 8 GPUs and 2 are present", "--set hardware.gpus_per_node=2") in said(
        examine("rl2", whole("rl2", gpus=2), ask)
    )


def test_the_disk_of_a_recipe_is_that_of_its_checkpoints():
    probe = whole("verl")
    probe.here = replace(probe.here, disk_bytes=50 * 10**9)
    assert examine("verl", probe).ready
    texts = [text for text, _ in said(examine("verl", probe, Ask(recipe=recipe())))]
    # 1.72e9 weights, 12 bytes each in three checkpoints, 4 in the model at the end
    assert any("50.0 GB of free disk" in text and "take 69 GB" in text for text in texts), texts
    probe.here = replace(probe.here, disk_bytes=5 * 10**9)
    assert not examine("verl", probe).ready


def test_sglang_in_verl_is_refused_with_the_reason():
    ask = Ask(recipe=recipe("hardware.engine=sglang"))
    texts = [text for text, _ in said(examine("verl", whole("verl"), ask))]
    assert texts[0].startswith("verl 0.9.1 pins sglang 0.5.12, which pins transformers 5.6.0")


def test_trl_with_transformers_as_its_engine_needs_no_vllm():
    probe = whole("trl")
    del probe.versions["vllm"]
    assert not examine("trl", probe).ready
    verdict = examine("trl", probe, Ask(recipe=recipe("hardware.engine=hf")))
    assert not any("vllm" in text for text, _ in said(verdict))
    assert "vllm:LLM" not in probe.imported


def test_the_model_of_a_recipe_is_a_directory_of_a_model(tmp_path):
    text = f"model.path = '{tmp_path}' is not a directory with a config.json"
    ask = Ask(recipe=recipe(f"model.path={tmp_path}"))
    assert text in [text for text, _ in said(examine("trl", whole("trl"), ask))]
    (tmp_path / "config.json").write_text("{}")
    assert text not in [text for text, _ in said(examine("trl", whole("trl"), ask))]


def test_the_environments_of_a_recipe_can_be_made():
    probe = whole("trl")
    ask = Ask(recipe=recipe("hardware.gpus_per_node=8"))
    assert examine("trl", probe, ask).ready
    probe.environment = "math needs math-verify"
    assert said(examine("trl", probe, ask)) == [("math needs math-verify", "")]
    assert examine("trl", probe).ready  # no recipe, no environment


def test_what_was_seen_is_said_in_words():
    verdict = examine("openrlhf", whole("openrlhf"))
    assert verdict.seen == (
        "8 x NVIDIA H100 80GB HBM3 (80 GB); torch 2.13.0 (CUDA 13.0, NCCL 2.28.9); nvcc 13.0; "
        "/dev/shm 64.0 GB; 2000 GB of free disk"
    )
    assert verdict.data()["machine"] == verdict.seen
    assert "no GPU; torch 2.13.0+cpu (for CPUs); no nvcc" in examine("trl", without_gpu("trl")).seen


def test_a_recipe_for_the_other_device():
    ask = Ask("cpu", recipe())
    assert ("the recipe trains on a GPU", "--set hardware.device=cpu") in said(
        examine("trl", without_gpu("trl"), ask)
    )


def test_every_card_of_a_machine_is_one_that_torch_sees():
    probe = whole("trl", gpus=2)
    probe.here = replace(probe.here, gpus=(H100,) * 8)  # CUDA_VISIBLE_DEVICES=0,1
    ask = Ask(recipe=recipe("hardware.gpus_per_node=8"))
    assert any(
        "wants 8 GPUs and 2 are present" in text for text, _ in said(examine("trl", probe, ask))
    )


def test_every_adapter_of_the_project_has_its_lines():
    assert sorted(stacks()) == NAMES


@pytest.mark.parametrize(
    ("name", "line"),
    [("trl", stack("trl").line_for("vllm")), ("rl2", "--set eval.engine=hf")],
)
def test_the_engine_of_the_evaluations_must_be_there(name, line):
    def problems(probe, *keys):
        ask = Ask("cpu", recipe=load_recipe(BASELINE, "tiny", ["eval.engine=vllm", *keys]))
        return [found for found in said(examine(name, probe, ask)) if "eval.engine" in found[0]]

    probe = without_gpu(name)
    probe.absent = ("vllm",)
    what = f'eval.engine = "vllm", and vLLM is not in this environment of {name}'
    assert problems(probe) == [(what, line)]
    assert problems(probe, "eval.episodes=0") == problems(probe, "eval.engine=hf") == []
    probe.absent = ()
    assert problems(probe) == []
