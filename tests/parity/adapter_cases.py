"""Models with adapters, of trainrun and of the package peft, for adapters_parity_test.py: how they are built, trained
and saved."""

import dataclasses
import pathlib

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn import functional

peft = pytest.importorskip("peft", reason="peft is not installed: tools/setup --tests fetches it")

from language_models import BERT, GPT, LLAMA_3, QWEN, LanguageModel  # noqa: E402

STEPS = 20
LR = 5e-3
EPS = 1e-5  # or AdamW makes steps of what is but rounding in gradients near 0

RECIPE = """
version: 1
name: adapters
seed: 3
model: {{layers: [{layers}], adapters: {adapters}}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
dataset:
  train: {{type: TensorFile, path: {data}, target: labels}}
  eval: {{type: TensorFile, path: {data}, target: labels}}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: {lr}, eps: {eps}}}
training: {{max_steps: {steps}}}
evaluation: {{every: null}}
checkpoint: {{every: {every}}}
"""


@dataclasses.dataclass
class Case:
    model: LanguageModel
    adapters: str
    config: object  # peft's

    @property
    def type(self) -> str:
        return self.adapters.split(",")[0].removeprefix("{type: ")

    def make_peer(self, folder: pathlib.Path):
        """The base model, saved to `folder`, with peft's adapters around it."""
        base = self.model.saved(folder, **dict.fromkeys(self.model.dropout, 0.0))
        torch.manual_seed(8)
        return peft.get_peft_model(base, self.config)


CASES = {
    "LoRA": Case(LLAMA_3, "{type: LoRA, r: 4, alpha: 16, target: [q_proj, v_proj]}",
                 peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"])),
    "LoRA by pattern": Case(LLAMA_3, "{type: LoRA, use_rslora: true, target: ['layers\\.[01]\\..*_proj$']}",
                            peft.LoraConfig(use_rslora=True, target_modules=r".*layers\.[01]\..*_proj")),
    "LoRA of an embedding": Case(LLAMA_3, "{type: LoRA, r: 3, target: [embed_tokens, lm_head, o_proj]}",
                                 peft.LoraConfig(r=3, target_modules=["embed_tokens", "lm_head", "o_proj"])),
    "LoRA of GPT-2": Case(GPT, "{type: LoRA, r: 2, alpha: 5, target: [c_attn, c_proj]}",
                          peft.LoraConfig(r=2, lora_alpha=5, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "LoRA and a classifier": Case(BERT, "{type: LoRA, target: ['query$', 'value$'], modules_to_save: [classifier]}",
                                  peft.LoraConfig(target_modules=["query", "value"], modules_to_save=["classifier"])),
    "LoRA and a tied embedding": Case(QWEN, "{type: LoRA, r: 4, target: [q_proj], modules_to_save: [embed_tokens]}",
                                      peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    "LoRA and a tied head": Case(GPT, "{type: LoRA, r: 4, target: [c_attn], modules_to_save: [lm_head]}",
                                 peft.LoraConfig(r=4, target_modules=["c_attn"], modules_to_save=["lm_head"], fan_in_fan_out=True)),
    "DoRA": Case(LLAMA_3, "{type: DoRA, r: 4, alpha: 16, target: [q_proj, v_proj, down_proj]}",
                 peft.LoraConfig(use_dora=True, r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])),
    "DoRA with biases": Case(QWEN, "{type: DoRA, r: 4, target: [q_proj, k_proj]}",
                             peft.LoraConfig(use_dora=True, r=4, target_modules=["q_proj", "k_proj"])),
    "DoRA of GPT-2": Case(GPT, "{type: DoRA, r: 4, target: [c_attn]}",
                          peft.LoraConfig(use_dora=True, r=4, target_modules=["c_attn"], fan_in_fan_out=True)),
    "IA3": Case(LLAMA_3, "{type: IA3, target: [k_proj, v_proj, down_proj], feedforward: [down_proj]}",
                peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "IA3 with biases": Case(BERT, "{type: IA3, target: [key, value, 'output.dense'], feedforward: ['output.dense'], modules_to_save: [classifier]}",
                            peft.IA3Config(target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"],
                                           modules_to_save=["classifier"])),
    "IA3 of GPT-2": Case(GPT, "{type: IA3, target: [c_attn, 'mlp.c_proj'], feedforward: ['mlp.c_proj']}",
                         peft.IA3Config(target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"], fan_in_fan_out=True)),
}
ONE_OF_EACH = ["LoRA", "DoRA", "IA3"]


def labels_for(model: LanguageModel, fields: dict[str, torch.Tensor]) -> torch.Tensor:
    ids = fields["input_ids"]
    if not model.is_decoder:
        return torch.arange(len(ids)) % 2
    following = torch.full_like(ids, -100)
    following[:, :-1] = torch.where(fields["attention_mask"][:, 1:].bool(), ids[:, 1:], -100)
    return following


def data_of(model: LanguageModel) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    fields = model.fields(num=16)
    return fields, labels_for(model, fields | {"attention_mask": torch.ones_like(fields["attention_mask"])})


def write_recipe(folder: pathlib.Path, case: Case, adapters: str | None = None, steps: int = STEPS, every: int = STEPS) -> str:
    fields, labels = data_of(case.model)
    np.savez(folder / "data.npz", **{name: tensor.numpy() for name, tensor in (fields | {"labels": labels}).items()})
    path = folder / "adapters.yaml"
    layers = f"{{type: {case.model.type}, pretrained: {folder / 'base'}}}"
    path.write_text(RECIPE.format(layers=layers, data=folder / "data.npz", adapters=adapters or case.adapters, lr=LR, eps=EPS, steps=steps, every=every))
    return str(path)


def state_of(run: pathlib.Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(run / "checkpoints" / "latest" / "model.safetensors")


def saved_by_peft(peer) -> dict[str, torch.Tensor]:
    """peft's adapters under our state names."""
    state = peft.get_peft_model_state_dict(peer, save_embedding_layers=False)
    return {name.removeprefix("base_model.model."): tensor for name, tensor in state.items()}


def into_peft(peer, state: dict[str, torch.Tensor]) -> None:
    """Our adapters into peft's model."""
    own = {f"base_model.model.{name}": state[name] for name in saved_by_peft(peer)}
    unknown = peft.set_peft_model_state_dict(peer, own).unexpected_keys
    assert not unknown, unknown


def logits_of(model, fields):
    with torch.no_grad():
        return model.eval()(**fields).logits


def trained(case: Case, peer, steps: int = STEPS, lr: float = LR, bf16: bool = False) -> list[float]:
    """The losses of a training of peft's model."""
    fields, labels = data_of(case.model)
    optimizer = torch.optim.AdamW([p for p in peer.parameters() if p.requires_grad], lr=lr, eps=EPS)
    peer.train()
    losses = []
    for step in range(steps):
        part = slice(4 * (step % 4), 4 * (step % 4) + 4)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = peer(**{name: tensor[part] for name, tensor in fields.items()}).logits.float()
        loss = functional.cross_entropy(logits.flatten(0, -2), labels[part].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def begun_by_peft(case: Case, folder: pathlib.Path):
    """A folder that peft wrote after some steps, and the model with which it did so."""
    peer = case.make_peer(folder / "base")
    trained(case, peer, steps=5)
    peer.save_pretrained(folder / "adapter")
    return peer


def opened_by_peft(case: Case, base: pathlib.Path, folder: pathlib.Path):
    return peft.PeftModel.from_pretrained(case.model.kind.from_pretrained(base), folder)
