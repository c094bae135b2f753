"""The job of recipes/gpt2_clm.yaml as transformers' run_clm_no_trainer.py has it, on the CPU. Prints figures as JSON."""

import argparse
import json
import pathlib
import resource
import time

import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=pathlib.Path, help="the folder of config.json, model.safetensors and tokenizer.json")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument("--block", type=int, default=512)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="of which the second half is timed")
    arguments = parser.parse_args()

    start = time.perf_counter()
    transformers.set_seed(42)
    accelerator = Accelerator(mixed_precision=arguments.precision, cpu=True, gradient_accumulation_steps=arguments.accumulation)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(arguments.checkpoint / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.checkpoint)
    text = arguments.text.read_text()
    ids = torch.tensor(tokenizer(text[: len(text) * 9 // 10])["input_ids"])
    blocks = ids[: len(ids) // arguments.block * arguments.block].view(-1, arguments.block)
    loader = DataLoader([{"input_ids": block, "labels": block} for block in blocks], batch_size=arguments.batch, shuffle=True,
                        collate_fn=transformers.default_data_collator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 0, 3 * len(loader) // arguments.accumulation)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    steps = 0
    begin = time.perf_counter()
    while steps < arguments.steps:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                steps += 1
                if steps == arguments.steps // 2:
                    begin = time.perf_counter()
                if steps == arguments.steps:
                    break
    seconds = (time.perf_counter() - begin) / (arguments.steps - arguments.steps // 2)
    tokens = arguments.batch * arguments.block * arguments.accumulation
    print(json.dumps({"tokens_per_second": tokens / seconds, "loss": loss.item(), "whole": time.perf_counter() - start,
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
