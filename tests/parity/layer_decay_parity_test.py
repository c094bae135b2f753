"""optimizer.layer_decay against parameter groups that are made by hand, and the layers that it finds in models against those of timm
and ELECTRA, written down for every registered model."""

import json
import pathlib
import re
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn

import language_models
import reference
import vision_models
from probe import Probe, assert_same

from tests.program import CALLED

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
DECAY, RATE, NUM_STEPS = 0.5, 0.01, 6
BLOCK = "{type: Sequential, layers: [{type: Linear, out_features: 16}, LayerNorm, ReLU]}"
LAYERS = (f"model.layers=[Flatten, {{type: Linear, name: stem, out_features: 16}}, {{type: LayerNorm, name: norm}}, "
          f"{{type: Sequential, name: blocks, layers: [{BLOCK}, {BLOCK}, {BLOCK}]}}, {{type: Linear, name: head, out_features: 10}}]")
LAYER_OF = {"stem": 0, "norm": 0, "blocks.0": 1, "blocks.1": 2, "blocks.2": 3, "head": 4}
OPTIMIZER = (f"optimizer={{type: AdamW, lr: {RATE}, weight_decay: 0.1, layer_decay: {DECAY}, "
             "param_groups: [{match: 'bias$|norm|blocks..[.]1', weight_decay: 0}]}")


def run(folder, *overrides):
    common = [LAYERS, OPTIMIZER, f"training={{num_epochs: null, max_steps: {NUM_STEPS}}}", "evaluation.every=null", "checkpoint={every: 2, keep_last: null}"]
    reference.run_trainrun(RECIPE, folder, *common, *overrides)
    return safetensors.torch.load_file(folder / "checkpoints/latest/model.safetensors")


def make_model():
    def block():
        return nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU())
    model = nn.Sequential()
    for name, module in (("0", nn.Flatten()), ("stem", nn.Linear(64, 16)), ("norm", nn.LayerNorm(16)), ("blocks", nn.Sequential(block(), block(), block())),
                         ("head", nn.Linear(16, 10))):
        model.add_module(name, module)
    return model


def groups_of(model):
    groups = []
    for name, parameter in model.named_parameters():
        layer = next(number for prefix, number in LAYER_OF.items() if name.startswith(prefix + "."))
        groups.append({"params": [parameter], "lr": RATE * DECAY ** (4 - layer), "weight_decay": 0.0 if parameter.ndim == 1 else 0.1})
    return groups


def expected_weights():
    torch.manual_seed(3)
    model = make_model()
    optimizer = torch.optim.AdamW(groups_of(model))
    images, labels = reference.digits("train")
    for step, (_, rows) in enumerate(reference.batches(len(labels), 32, 3)):
        if step == NUM_STEPS:
            return model.state_dict()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def test_each_layer_has_the_rate_of_the_next_one_times_the_decay(tmp_path):
    weights = run(tmp_path / "run")
    assert_same(weights, expected_weights(), "weights", 2e-5)
    for step in (2, 4):
        rest = run(tmp_path / f"from-{step}", f"checkpoint.resume={tmp_path}/run/checkpoints/step-{step:08}")
        assert_same(rest, weights, "weights of a resumed run")


@pytest.mark.parametrize("ranks", ["MULTI_CPU", "FSDP"])
def test_ranks_have_the_same_rates(tmp_path, ranks):
    one = run(tmp_path / "one")
    two = run(tmp_path / "two", f"distributed_type={ranks}", "num_processes=2", "dataloader.batch_size=16")
    assert_same(two, one, "weights", 1e-4)


def rates_of(layers, *more):
    """Of explain: the number of tensors with each rate, from the highest."""
    data = "dataset={train: null, eval: null}", "dataset={train: {type: Synthetic, num_samples: 64, shape: [3, 64, 64]}}"
    done = subprocess.run([CALLED, "explain", RECIPE, "--json", *data, "metrics=[]", f"model.layers=[{layers}]",
                           "optimizer=null", f"optimizer={{type: SGD, lr: 1.0, layer_decay: {DECAY}}}", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rates = {}
    for group in json.loads(done.stdout)["param_groups"]:
        rates[group["lr"]] = rates.get(group["lr"], 0) + group["tensors"]
    return [rates[rate] for rate in sorted(rates, reverse=True)], sorted(rates, reverse=True)


def test_the_layers_of_vision_models_are_their_blocks():
    tensors, rates = rates_of("{type: ResNet18, num_classes: 10}")  # fc, the eight blocks, conv1 and bn1
    assert rates == [DECAY ** i for i in range(10)]
    assert tensors == [2, 6, 9, 6, 9, 6, 9, 6, 6, 3]
    tensors, rates = rates_of("{type: ViT_S_16, num_classes: 10}")  # the head; twelve blocks, the last one's with the norm after it; patches, positions and token
    assert rates == [DECAY ** i for i in range(14)]
    assert tensors == [2, 14, *[12] * 11, 4]


# For every registered model the beginnings of its parameters' names, layer by layer from the first to the last: what a line of
# names shares has one rate.

def blocks(prefix: str, count: int) -> list[list[str]]:
    return [[f"{prefix}{i}."] for i in range(count)]


def encoder(prefix: str, layers: str, count: int, *heads: str) -> list[list[str]]:
    return [[prefix + "embeddings."], *blocks(prefix + layers, count), *([head] for head in heads)]


def decoder(prefix: str, count: int, *heads: str) -> list[list[str]]:
    *lower, last = blocks(prefix + "layers.", count)
    return [[prefix + "embed_tokens."], *lower, [*last, prefix + "norm."], *([head] for head in heads)]


def gpt2(prefix: str, *heads: str) -> list[list[str]]:
    return [[prefix + "wte.", prefix + "wpe."], [prefix + "h.0."], [prefix + "h.1.", prefix + "ln_f."], *([head] for head in heads)]


def resnet(*stages: int) -> list[list[str]]:
    return [["conv1.", "bn1."], *(block for i, count in enumerate(stages) for block in blocks(f"layer{i + 1}.", count)), ["fc."]]


def vgg(convolutions: list[int], norm: bool) -> list[list[str]]:
    features = [[f"features.{i}.", *([f"features.{i + 1}."] if norm else [])] for i in convolutions]
    return [*features, ["classifier.0."], ["classifier.3."], ["classifier.6."]]


def efficientnet(*stages: int) -> list[list[str]]:
    return [["features.0."], *(block for i, count in enumerate(stages) for block in blocks(f"features.{i + 1}.", count)), ["features.8."],
            ["classifier."]]


def vit(count: int) -> list[list[str]]:
    *lower, last = blocks("encoder.layers.encoder_layer_", count)
    return [["conv_proj.", "class_token", "encoder.pos_embedding"], *lower, [*last, "encoder.ln."], ["heads."]]


def positions(*convolutions_of_stages: int, norm: bool = False) -> list[int]:
    """Of VGG's convolutions among its features: each is followed by (a norm and) a ReLU, each stage by a pooling."""
    found, at = [], 0
    for count in convolutions_of_stages:
        for _ in range(count):
            found.append(at)
            at += 3 if norm else 2
        at += 1
    return found


VGG_STAGES = {"VGG11": (1, 1, 2, 2, 2), "VGG13": (2, 2, 2, 2, 2), "VGG16": (2, 2, 3, 3, 3), "VGG19": (2, 2, 4, 4, 4)}
LAYERS_OF = {  # of language models with 2 blocks, or 3 after Llama's fashion, as language_models.py has them
    "BertModel": encoder("", "encoder.layer.", 2, "pooler."),
    "BertForSequenceClassification": encoder("bert.", "encoder.layer.", 2, "bert.pooler.", "classifier."),
    "BertForTokenClassification": encoder("bert.", "encoder.layer.", 2, "classifier."),
    "BertForMaskedLM": encoder("bert.", "encoder.layer.", 2, "cls."),
    "RobertaModel": encoder("", "encoder.layer.", 2, "pooler."),
    "RobertaForSequenceClassification": encoder("roberta.", "encoder.layer.", 2, "classifier."),
    "RobertaForTokenClassification": encoder("roberta.", "encoder.layer.", 2, "classifier."),
    "RobertaForMaskedLM": encoder("roberta.", "encoder.layer.", 2, "lm_head."),
    "SentenceTransformer": encoder("auto_model.", "encoder.layer.", 2),
    "DistilBertModel": encoder("", "transformer.layer.", 2),
    "DistilBertForSequenceClassification": encoder("distilbert.", "transformer.layer.", 2, "pre_classifier.", "classifier."),
    "DistilBertForTokenClassification": encoder("distilbert.", "transformer.layer.", 2, "classifier."),
    "DistilBertForMaskedLM": [*encoder("distilbert.", "transformer.layer.", 2), ["vocab_transform.", "vocab_layer_norm.", "vocab_projector."]],
    "GPT2Model": gpt2(""),
    "GPT2LMHeadModel": gpt2("transformer."),  # its head is the embedding's weight
    "GPT2LMHeadModel_untied": gpt2("transformer.", "lm_head."),
    "LlamaForCausalLM": decoder("model.", 3, "lm_head."),
    "LlamaForCausalLM_linear_biased": decoder("model.", 3),  # tied
    "Qwen2ForCausalLM": decoder("model.", 3),  # tied
    "Qwen2ForCausalLM_windows": decoder("model.", 3, "lm_head."),
    "MistralForCausalLM": decoder("model.", 3, "lm_head."),
    "Qwen3ForCausalLM": decoder("model.", 3, "lm_head."),
    **{f"{family}ForSequenceClassification": decoder("model.", 3, "score.") for family in ("Llama", "Qwen2", "Mistral", "Qwen3")},
    "ResNet18": resnet(2, 2, 2, 2),
    "ResNet34": resnet(3, 4, 6, 3),
    "ResNet50": resnet(3, 4, 6, 3),
    "ResNet101": resnet(3, 4, 23, 3),
    "ResNet152": resnet(3, 8, 36, 3),
    "WideResNet50_2": resnet(3, 4, 6, 3),
    "WideResNet101_2": resnet(3, 4, 23, 3),
    **{name: vgg(positions(*stages), norm=False) for name, stages in VGG_STAGES.items()},
    **{name + "_bn": vgg(positions(*stages, norm=True), norm=True) for name, stages in VGG_STAGES.items()},
    "MobileNetV2": [*blocks("features.", 19), ["classifier."]],
    "MobileNetV3Small": [*blocks("features.", 13), ["classifier.0."], ["classifier.3."]],
    "MobileNetV3Large": [*blocks("features.", 17), ["classifier.0."], ["classifier.3."]],
    "EfficientNetB0": efficientnet(1, 2, 2, 3, 3, 4, 1),
    "EfficientNetB1": efficientnet(2, 3, 3, 4, 4, 5, 2),
    "EfficientNetB2": efficientnet(2, 3, 3, 4, 4, 5, 2),
    "EfficientNetB3": efficientnet(2, 3, 3, 5, 5, 6, 2),
    "EfficientNetB4": efficientnet(2, 4, 4, 6, 6, 8, 2),
    "ConvNeXtTiny": [["features.0."], *blocks("features.1.", 3), ["features.2."], *blocks("features.3.", 3), ["features.4."],
                     *blocks("features.5.", 9), ["features.6."], *blocks("features.7.", 3), ["classifier."]],
    "ViT_S_16": vit(12),
    "ViT_B_16": vit(12),
    "UNet": [["down0."], ["down1."], ["down2."], ["down3."], ["bottom."], ["up3."], ["decode3."], ["up2."], ["decode2."], ["up1."], ["decode1."],
             ["up0."], ["decode0."], ["head."]],
}
TIED = {"BertForMaskedLM": "cls.predictions.decoder.weight", "DistilBertForMaskedLM": "vocab_projector.weight",
        "RobertaForMaskedLM": "lm_head.decoder.weight", "GPT2LMHeadModel": "lm_head.weight",
        "LlamaForCausalLM_linear_biased": "lm_head.weight", "Qwen2ForCausalLM": "lm_head.weight"}  # the embedding by another name


def scales_of(probe: Probe, spec: dict, inputs: dict[str, torch.Tensor]) -> dict[str, float]:
    return probe.ask("shapes", {f"input.{name}": tensor for name, tensor in inputs.items()}, spec=spec, layer_decay=DECAY)[0]["scales"]


def models(folder: pathlib.Path):
    """The registered models, in every form that has a row: what a recipe says of them, and what they read."""
    for model in vision_models.ALL:
        yield model.spec["type"], model.spec, {"x": torch.zeros(2, 3, 64, 64)}
    for model in language_models.ALL:
        label = model.label if str(model) in LAYERS_OF else ""
        model.saved(folder / str(model))
        spec = {"type": model.type, "pretrained": str(folder / str(model))}
        inputs = {name: tensor[:2] for name, tensor in model.fields().items()}
        yield model.type + label, spec, inputs
        if model.type == "BertModel":  # which pools the tokens of such an encoder
            yield "SentenceTransformer", spec | {"type": "SentenceTransformer"}, inputs


def test_the_layers_of_every_registered_model_are_those_written_by_hand(probe, tmp_path):
    seen, types, wrong = set(), set(), {}
    for name, spec, inputs in models(tmp_path):
        seen.add(name)
        types.add(spec["type"])
        scales, last = scales_of(probe, spec, inputs), len(LAYERS_OF[name]) - 1
        expected = {}
        for number, prefixes in enumerate(LAYERS_OF[name]):
            expected |= {parameter: DECAY ** (last - number) for parameter in scales if parameter.startswith(tuple(prefixes))}
            assert any(parameter.startswith(tuple(prefixes)) for parameter in scales), (name, prefixes)
        if name in TIED:
            expected[TIED[name]] = DECAY**last
        if scales != expected:
            wrong[name] = {parameter: (scale, expected.get(parameter)) for parameter, scale in scales.items() if scale != expected.get(parameter)}
    assert wrong == {}
    assert seen == set(LAYERS_OF)
    registered = {name for source in pathlib.Path("registry/models").glob("*.cpp")
                  for name in re.findall(r'layers\.add<[^;"]*\(\s*"(\w+)"', source.read_text())}
    assert types == registered, "a registered model has no row"


def test_layers_beside_each_other_have_one_rate_and_a_list_may_lie_deep(probe):
    def at(layers, **inputs):
        scales = scales_of(probe, {"type": "Sequential", "layers": layers}, inputs)
        return {name.removeprefix("0."): scale for name, scale in scales.items() if name.endswith("weight")}

    def linear(name, features=6, **more):
        return {"type": "Linear", "name": name, "out_features": features} | more

    x = torch.zeros(2, 6)
    block = {"type": "Sequential", "layers": [linear("a"), {"type": "LayerNorm", "name": "norm"}]}
    inner = {"type": "Sequential", "name": "layer", "layers": [block, block]}
    body = {"type": "Sequential", "name": "body", "layers": [{"type": "Sequential", "name": "encoder", "layers": [inner]},
                                                             {"type": "Sequential", "name": "pooler", "layers": [linear("dense")]}]}
    assert at([linear("stem"), body, linear("left"), linear("right", inputs=["body"])], x=x) == {
        "stem.weight": 0.0625, "body.encoder.layer.0.a.weight": 0.125, "body.encoder.layer.0.norm.weight": 0.125,
        "body.encoder.layer.1.a.weight": 0.25, "body.encoder.layer.1.norm.weight": 0.25, "body.pooler.dense.weight": 0.5,
        "left.weight": 1, "right.weight": 1}
