"""Data that recipes name and that is not at hand here, small and of the same form: pictures of noise, models with random weights."""

import pathlib
import shutil

import numpy as np
import torch


LANGUAGE_MODELS = ("minilm", "bert-base-cased", "gpt2")


def link(folder: pathlib.Path, real: pathlib.Path, name: str) -> bool:
    if not (real / name).exists():
        return False
    (folder / name).symlink_to((real / name).resolve())
    return True


def cifar10(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    (folder / "cifar10/cifar-10-batches-bin").mkdir(parents=True)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows = random.integers(0, 256, (10000, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"cifar10/cifar-10-batches-bin/{name}.bin")


def pets(folder: pathlib.Path) -> None:
    import torchvision
    from PIL import Image

    random = np.random.default_rng(0)
    for name in ("annotations", "images"):
        (folder / "pets" / name).mkdir(parents=True)
    for split, count in (("trainval", 96), ("test", 16)):
        lines = []
        for i in range(count):
            pixels = random.integers(0, 256, (30, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((240 + i % 7, 180 + i % 5)).save(folder / f"pets/images/{split}_{i}.jpg")
            lines.append(f"{split}_{i} {i % 37 + 1} {i % 2 + 1} 1\n")
        (folder / f"pets/annotations/{split}.txt").write_text("".join(lines))
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet50().state_dict(), folder / "pets/resnet50.pth")


def language_models(folder: pathlib.Path, text: pathlib.Path) -> None:
    """Tiny models, and tokenizers that were trained on `text`."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    def saved(name, model, tokenizer, tokens):
        model.save_pretrained(folder / name)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens).save_pretrained(folder / name)

    words = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.train([str(text)], trainers.WordPieceTrainer(vocab_size=600, special_tokens=list(words.values())))
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[(t, pieces.token_to_id(t)) for t in ("[CLS]", "[SEP]")])
    for name in ("minilm", "bert-base-cased"):
        torch.manual_seed(0)
        config = transformers.BertConfig(vocab_size=600, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
        saved(name, transformers.BertForSequenceClassification(config).bert, pieces, words)
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters.train([str(text)], trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=512, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    saved("gpt2", transformers.GPT2LMHeadModel(config), letters, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})


def fill(folder: pathlib.Path, real: pathlib.Path) -> None:
    folder.mkdir()
    for name in ("mnist", "tinyshakespeare", "mrpc"):
        assert link(folder, real, name), f"{real} has no {name}"
    if not link(folder, real, "fashion_mnist"):
        shutil.copytree(real / "mnist", folder / "fashion_mnist")
    for name, function in (("cifar10", cifar10), ("pets", pets)):
        if not link(folder, real, name):
            function(folder)
    if not all([link(folder, real, name) for name in LANGUAGE_MODELS]):
        for name in LANGUAGE_MODELS:
            (folder / name).unlink(missing_ok=True)
        language_models(folder, folder / "tinyshakespeare/input.txt")


def make(folder: pathlib.Path, real: pathlib.Path) -> list[str]:
    """Everything that the shipped recipes look for in TRAINRUN_DATA, unless it is there already; returns what of it stands in for real data."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        fill(part, real)
        part.rename(folder)
    return sorted(path.name for path in folder.iterdir() if not path.is_symlink())
