"""Throughput of rtxscale's workloads on one GPU over bare loops against timm, transformers, peft and diffusers.

    python tests/bench/bare.py --list                           names of the cases
    python tests/bench/bare.py --only resnet50 --json bare.json cases of a name, or that begin so; continues the file
    python tests/bench/bare.py --pairs 4 --seconds 10           all of them, about 25 minutes on one H200
    python tests/bench/bare.py --device cpu --tiny              tiny models: shows that the bench works, no more
    python tests/bench/bare.py --only resnet50-bf16 --timm-benchmark benchmark.py      timm's own script as well

How to read it. Each line is one case: work per second of the bare loop, and the ratio of rtxscale's to it with its 95 %
interval (Student's t on log ratios of pairs, measured in the order A B B A in fresh processes). Bar: within 2 %, which
is 0.98 to 1.02. The bare loops below know nothing of rtxscale: model from its library, `autocast`, `backward`, fused
optimizer, gradients dropped, one window of steps behind a warm-up; of rtxscale they take only the settings of the case
and SDXL's published configuration. Each measurement is kept in the JSON file as soon as it is there, and one that is
there is not made again. Nothing is asserted: timings of a machine that somebody else uses are no test.

`--timm-benchmark` takes the path of `benchmark.py` of timm's repository, which its package leaves out: the images per
second of its training benchmark at the same model, batch and precision. It waits for the GPU in every step, draws new
labels and uses an optimizer that is not fused, so rtxscale may be a little faster. Only for bf16: it allows TF32.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BAR = 0.02
MEASURE = {"warmup_min_s": 3.0, "warmup_max_s": 60.0, "min_steps": 10, "tolerance": 0.05}
RESNET = {"kind": "vision", "model": "resnet50", "batch_per_gpu": 256}
SWIN = {"kind": "vision", "model": "swin_base_patch4_window7_224", "batch_per_gpu": 256}
DECODER = {"kind": "language", "size": "1b", "batch_per_gpu": 1, "context": 8192}
ADAPTED = {
    "kind": "language",
    "size": "7b",
    "batch_per_gpu": 4,
    "context": 2048,
    "tuning": "lora",
    "checkpointing": "on",
}
CASES: dict[str, dict[str, Any]] = {
    "resnet50-bf16": {**RESNET, "precision": "bf16"},
    "resnet50-bf16-compile": {**RESNET, "precision": "bf16", "compile": "default"},
    "resnet50-fp32": {**RESNET, "precision": "fp32"},
    "swin-bf16": {**SWIN, "precision": "bf16"},
    "swin-bf16-compile": {**SWIN, "precision": "bf16", "compile": "default"},
    "swin-fp32": {**SWIN, "precision": "fp32"},
    "1b-8k": DECODER,
    "1b-8k-checkpointing": {**DECODER, "checkpointing": "on"},
    "7b-lora": ADAPTED,
    "sdxl": {"kind": "diffusion", "batch_per_gpu": 32, "checkpointing": "on"},
}
"""Large enough that an H200 decides how long a step takes: at batch 1 of most models its host does, and scatters."""
TINY: dict[str, dict[str, Any]] = {
    "vision": {"kind": "vision", "model": "test_resnet", "image_size": 64, "batch_per_gpu": 8, "precision": "fp32"},
    "language": {"kind": "language", "size": "tiny", "context": 64, "batch_per_gpu": 2, "precision": "fp32"},
    "lora": {
        "kind": "language",
        "size": "tiny",
        "context": 64,
        "batch_per_gpu": 2,
        "tuning": "lora",
        "precision": "fp32",
    },
    "sdxl": {"kind": "diffusion", "model": "tiny", "image_size": 64, "batch_per_gpu": 2, "precision": "fp32"},
}
Step = Callable[[], None]


def bare_vision(case: dict[str, Any], device: Any) -> tuple[Step, float]:
    """One step of a timm model with SGD on one batch of noise, and its images."""
    import timm
    import torch

    size, batch = case.get("image_size", 224), case["batch_per_gpu"]
    model = timm.create_model(case["model"], num_classes=1000).to(device).to(memory_format=torch.channels_last).train()
    run = torch.compile(model) if case.get("compile", "off") != "off" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=case["precision"] == "bf16"):
            loss = torch.nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, float(batch)


def bare_language(case: dict[str, Any], device: Any) -> tuple[Step, float]:
    """One step of a transformers Llama with AdamW on one batch of random tokens, and its tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from rtxscale.models.shapes import SIZES

    shape, low = SIZES[case["size"]], case.get("precision", "bf16") == "bf16"
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
    )
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    if case.get("tuning") == "lora":
        from peft import LoraConfig, get_peft_model

        if low:
            model = model.to(torch.bfloat16)
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"]))
        model.enable_input_require_grads()
    if case.get("checkpointing") == "on":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(shape.vocab, (case["batch_per_gpu"], case["context"]), device=device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, float(tokens.numel())


def bare_diffusion(case: dict[str, Any], device: Any) -> tuple[Step, float]:
    """One step of diffusers' UNet with AdamW and diffusers' own DDPM scheduler on noise, and its samples."""
    import torch
    from diffusers import DDPMScheduler

    from rtxscale.models.unets import UNETS
    from rtxscale.workloads.networks.unet import build_unet

    shape, batch = UNETS[case.get("model", "sdxl")], case["batch_per_gpu"]
    side, low = case.get("image_size", 1024) // 8, case.get("precision", "bf16") == "bf16"
    with torch.device(device):
        model = build_unet(shape).to(memory_format=torch.channels_last).train()
    if case.get("checkpointing") == "on":
        model.enable_gradient_checkpointing()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=1e-2, fused=True)
    scheduler: Any = DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    latents = torch.randn(batch, 4, side, side, device=device)
    text = torch.randn(batch, *shape.text, device=device)
    added = {
        "text_embeds": torch.randn(batch, shape.pooled, device=device),
        "time_ids": torch.tensor([8.0 * side, 8.0 * side, 0, 0, 8.0 * side, 8.0 * side], device=device).repeat(
            batch, 1
        ),
    }

    def step() -> None:
        noise = torch.randn_like(latents)
        times = torch.randint(1000, (batch,), device=device)
        noisy = scheduler.add_noise(latents, noise, times)
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            found = model(noisy, times, encoder_hidden_states=text, added_cond_kwargs=added, return_dict=False)[0]
        torch.nn.functional.mse_loss(found.float(), noise).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, float(batch)


LOOPS = {"vision": bare_vision, "language": bare_language, "diffusion": bare_diffusion}


def inside(case: dict[str, Any], device_name: str, seconds: float) -> float:
    """Work per second of a bare loop in this process."""
    import torch

    low = case.get("precision", "bf16") == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = low
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)
    step, work = LOOPS[case["kind"]](case, torch.device(device_name))
    wait = torch.cuda.synchronize if device_name == "cuda" else (lambda: None)

    def timed(steps: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return time.perf_counter() - start

    timed(3)  # compilation, first allocations, cuDNN's trials
    step_s = timed(5) / 5
    timed(max(1, round(3.0 / step_s)))
    steps = max(10, round(seconds / step_s))
    return work * steps / timed(steps)


def bare(name: str, options: argparse.Namespace) -> float:
    """The same in a fresh process."""
    words = [sys.executable, __file__, "--inside", name, "--device", options.device, "--seconds", str(options.seconds)]
    return float(json.loads(_output([*words, *(["--tiny"] if options.tiny else [])], os.environ))["per_s"])


def ours(case: dict[str, Any], options: argparse.Namespace) -> float:
    """Work per second of rtxscale's rank code in a fresh process, with no Ray."""
    from rtxscale.rank.command import rank_environment, torchrun_argv
    from rtxscale.spec.cell import Trial

    measure = MEASURE | {"window_s": options.seconds} | ({"tolerance": 9.0} if options.tiny else {})
    trial = Trial.model_validate({"cell": {"workload": case, "measure": measure}, "visit": 1})
    arguments = ["--trial", trial.model_dump_json(), "--device", options.device, "--threads", "1"]
    found = json.loads(_output(torchrun_argv(1, arguments), os.environ | rank_environment(trial.cell, options.device)))
    if found["outcome"] != "ok":
        raise SystemExit(f"bare: {found['outcome']}: {found['message']}")
    return float(found["throughput_per_s"])


def timm_says(case: dict[str, Any], options: argparse.Namespace) -> float:
    """Images per second of timm's own training benchmark, in a fresh process."""
    words = [sys.executable, str(options.timm_benchmark), "--bench", "train", "--model", case["model"], "--no-retry"]
    words += ["--batch-size", str(case["batch_per_gpu"]), "--channels-last", "--device", options.device]
    words += ["--num-warm-iter", "50", "--num-bench-iter", "100"]
    words += ["--input-size", "3", *[str(case.get("image_size", 224))] * 2]
    words += ["--amp", "--amp-dtype", "bfloat16"] if case["precision"] == "bf16" else []
    words += ["--torchcompile"] if case.get("compile", "off") != "off" else []
    return float(json.loads(_output(words, os.environ))["train_samples_per_sec"])


def _output(words: list[str], environment: Any) -> str:
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bare: exit code {done.returncode} of {' '.join(words[:6])} ...\n{done.stderr[-2000:]}")
    return done.stdout[done.stdout.index("{") :]


def measured(name: str, options: argparse.Namespace, kept: dict[str, Any]) -> Iterator[None]:
    """Fill up a case's pairs in the order A B B A; a pause behind each measurement."""
    case = (TINY if options.tiny else CASES)[name]
    row = kept.setdefault(name, {"ours": [], "bare": []})
    measure = {
        "ours": lambda: ours(case, options),
        "bare": lambda: bare(name, options),
        "timm": lambda: timm_says(case, options),
    }
    sides = ["ours", "bare"]
    if options.timm_benchmark and case["kind"] == "vision" and (options.tiny or case["precision"] == "bf16"):
        sides.append("timm")
    for pair in range(options.pairs):
        for side in sides if pair % 2 == 0 else sides[::-1]:
            if len(row.setdefault(side, [])) <= pair:
                row[side].append(measure[side]())
                yield


def line(name: str, row: dict[str, Any], side: str) -> str:
    """A case against one of the other sides, in words."""
    from rtxscale.stats.compare import paired_ratio

    pairs = min(len(row["ours"]), len(row[side]))
    if pairs == 0:
        return f"{name:<24}  not measured"
    test = paired_ratio(row["ours"][:pairs], row[side][:pairs])
    mean = sum(row[side][:pairs]) / pairs
    inner = "" if pairs < 2 else f" ({test.low:.4f}-{test.high:.4f})"
    verdict = "met" if abs(test.ratio - 1) <= BAR else "not met"
    return (
        f"{name:<24}  {side} {mean:>12,.2f}/s  ratio {test.ratio:.4f}{inner}  {pairs} pairs  "
        f"within {BAR:.0%}: {verdict}"
    )


def main() -> None:
    """Measure, keep, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="cases of these names, or whose names begin so")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each window")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models")
    parser.add_argument("--json", type=Path, help="keep what was measured here, and continue from it")
    parser.add_argument("--timm-benchmark", type=Path, help="path of timm's benchmark.py: measure by it as well")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = TINY if options.tiny else CASES
    if options.list:
        print("\n".join(cases))
        return
    if options.inside:
        print(json.dumps({"per_s": inside(cases[options.inside], options.device, options.seconds)}))
        return
    begins = tuple(word for word in options.only if word not in cases)
    chosen = [name for name in cases if name in options.only or name.startswith(begins)]
    if not chosen:
        raise SystemExit(f"bare: found no case that begins with {', '.join(options.only)}; cases: {', '.join(cases)}")
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for name in chosen:
        for _ in measured(name, options, kept):
            if options.json:
                options.json.write_text(json.dumps(kept, indent=2))
        for side in (side for side in kept[name] if side != "ours"):
            print(line(name, kept[name], side), flush=True)


if __name__ == "__main__":
    main()
