"""The job of recipes/mrpc_minilm.yaml as Accelerate's nlp_example has it: transformers' model and tokenizer, dynamic padding. Prints figures as JSON."""

import argparse
import json
import pathlib
import resource
import time

import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader


def pairs(path: pathlib.Path) -> list:
    """(label, first, second) of each line: quotation marks are text."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [(int(row[0]), row[3], row[4]) for row in rows]


def evaluate(model, test: DataLoader) -> dict[str, float]:
    model.eval()
    right = hits = predicted = actual = count = 0
    with torch.no_grad():
        for batch in test:
            guess = model(**batch).logits.argmax(dim=-1)
            right += (guess == batch["labels"]).sum().item()
            hits += (guess & batch["labels"]).sum().item()
            predicted, actual, count = predicted + guess.sum().item(), actual + batch["labels"].sum().item(), count + len(guess)
    return {"accuracy": right / count, "f1": 2 * hits / (predicted + actual)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="the folder of mrpc/ and minilm/")
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many, without an evaluation")
    arguments = parser.parse_args()

    start = time.perf_counter()
    transformers.set_seed(arguments.seed)
    accelerator = Accelerator(mixed_precision=arguments.precision, cpu=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.data / "minilm")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(arguments.data / "minilm", num_labels=2)

    def encoded(split: str) -> list:
        rows = pairs(arguments.data / "mrpc" / f"msr_paraphrase_{split}.txt")
        samples = tokenizer([row[1] for row in rows], [row[2] for row in rows], truncation=True, max_length=128)
        return [{name: samples[name][i] for name in samples} | {"labels": row[0]} for i, row in enumerate(rows)]

    def collate(samples: list):
        return tokenizer.pad(samples, padding="longest", return_tensors="pt")

    train = DataLoader(encoded("train"), batch_size=16, shuffle=True, collate_fn=collate)
    test = DataLoader(encoded("test"), batch_size=64, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 100, arguments.epochs * len(train))
    model, optimizer, train, test, scheduler = accelerator.prepare(model, optimizer, train, test, scheduler)

    steps = tokens = 0
    seconds = 0.0
    skipped = 10 if arguments.steps else 0  # of the timing
    for _ in range(arguments.epochs):
        model.train()
        begin = time.perf_counter()
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            steps += 1
            if steps == skipped:
                begin, tokens = time.perf_counter(), 0
            else:
                tokens += batch["attention_mask"].sum().item()
            if steps == arguments.steps:
                break
        seconds += time.perf_counter() - begin
        if steps == arguments.steps:
            break
    result = {"loss": loss.item(), "seconds": seconds, "tokens_per_second": tokens / seconds}
    if not arguments.steps:
        result |= evaluate(model, test)
    result |= {"whole": time.perf_counter() - start, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
