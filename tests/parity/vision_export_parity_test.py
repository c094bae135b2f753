"""Vision models exported for transformers: its classes and pipelines give what trainrun predicts."""

import csv
import json
import subprocess

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
Image = pytest.importorskip("PIL.Image")
torchvision = pytest.importorskip("torchvision")

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NAMES = ["ant", "bee", "cat"]


def pictures(folder, height, width, count=2):
    draw = np.random.default_rng(7)
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            small = Image.fromarray(draw.integers(0, 255, (5, 5, 3), dtype=np.uint8))
            small.resize((width, height), Image.Resampling.BILINEAR).save(folder / name / f"{i}.png")
    return folder


def recipe(layer, size, transforms="", data="", more="loss: CrossEntropyLoss"):
    own = transforms or f"{{type: Resize, size: [{size}, {size}]}}"
    return f"""
version: 1
name: photos
seed: 5
model: {{layers: [{layer}]}}
{more}
metrics: [Accuracy]
dataset:
  train: {{type: ImageFolder, root: pictures, image_transforms: [{{type: RandomResizedCrop, size: {size}}}]{data}}}
  eval: {{type: ImageFolder, root: pictures, image_transforms: [{own}]{data}}}
  transforms: [{{type: Normalize, mean: {MEAN}, std: {STD}}}]
dataloader: {{batch_size: 3}}
optimizer: {{type: SGD, lr: 0.01}}
training: {{max_steps: 1}}
output_dir: run
device: cpu
"""


def trainrun(folder, *words, code=0):
    done = subprocess.run([CALLED, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def exported(folder, text):
    (folder / "recipe.yaml").write_text(text)
    trainrun(folder, "recipe.yaml")
    return trainrun(folder, "export", "run", "--format", "huggingface", "--output", "out")


def predicted(folder):
    return list(csv.DictReader(trainrun(folder, "predict", "run", "pictures").splitlines()))


MODELS = {"ResNet18": ("resnet18", 64), "ResNet50": ("resnet50", 64), "ConvNeXtTiny": ("convnext_tiny", 64), "ViT_S_16": (None, 48),
          "MobileNetV2": ("mobilenet_v2", 64)}


@pytest.mark.parametrize("type_", MODELS)
def test_transformers_gives_the_logits_and_labels_of_the_run(tmp_path, type_):
    maker, size = MODELS[type_]
    pictures(tmp_path / "pictures", size, size, count=1)  # no pixel has to be computed
    said = exported(tmp_path, recipe(f"{{type: {type_}, num_classes: 3}}", size))
    assert "note:" not in said
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == dict(enumerate(NAMES)) and model.config.label2id == {name: i for i, name in enumerate(NAMES)}
    assert model.config.problem_type == "single_label_classification"
    own = safetensors.torch.load_file(tmp_path / "out/model.safetensors")
    saved = tmp_path / "saved"
    model.save_pretrained(saved)
    assert own.keys() == safetensors.torch.load_file(saved / "model.safetensors").keys(), "no weight is missing or left over"
    rows = predicted(tmp_path)
    ask = transformers.pipeline("image-classification", model=str(tmp_path / "out"), device="cpu")
    logits = []
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    for row in rows:
        found = {one["label"]: one["score"] for one in ask(str(tmp_path / row["file"]), top_k=None)}
        assert found == pytest.approx({name: float(row[f"p({name})"]) for name in NAMES}, abs=1e-4) and max(found, key=found.get) == row["label"]
        with torch.no_grad():
            logits.append(model.eval()(**processor(Image.open(tmp_path / row["file"]), return_tensors="pt")).logits[0])
    if maker:  # of the exported weights in torchvision's own class
        trainrun(tmp_path, "export", "run", "--output", "own.safetensors")
        peer = getattr(torchvision.models, maker)(num_classes=3).eval()
        peer.load_state_dict(safetensors.torch.load_file(tmp_path / "own.safetensors"))
        images = torch.stack([torchvision.transforms.functional.normalize(torchvision.transforms.functional.to_tensor(Image.open(tmp_path / row["file"])), MEAN, STD)
                              for row in rows])
        with torch.no_grad():
            torch.testing.assert_close(torch.stack(logits), peer(images), rtol=1e-4, atol=1e-4)
    card = (tmp_path / "out/README.md").read_text()
    assert "pipeline_tag: image-classification" in card and 'pipeline("image-classification"' in card and "accuracy" in card


def test_the_base_vision_transformer_has_the_sizes_that_transformers_gives_it(tmp_path):
    """What it computes is what the small one does; with 86 million weights that takes long."""
    pictures(tmp_path / "pictures", 32, 32, count=1)
    exported(tmp_path, recipe("{type: ViT_B_16, num_classes: 3}", 32))
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.hidden_size, config.num_attention_heads, config.num_hidden_layers, config.image_size) == (768, 12, 12, 32)
    with torch.device("meta"):
        peer = transformers.AutoModelForImageClassification.from_config(config)
    with safetensors.safe_open(tmp_path / "out/model.safetensors", "pt") as file:
        shapes = sorted(file.get_slice(name).get_shape() for name in file.keys())
    assert shapes == sorted(list(tensor.shape) for tensor in peer.state_dict().values())  # names in files are others; they are the small one's


@pytest.mark.parametrize("resize", ["{type: Resize, size: 48}, {type: CenterCrop, size: 40}", "{type: Resize, size: [48, 32], interpolation: bicubic}",
                                    "{type: CenterCrop, size: [41, 33]}", "{type: Resize, size: 37}, {type: CenterCrop, size: [33, 35]}"])
def test_the_image_processor_makes_the_pixels_of_the_evaluation(tmp_path, probe, resize):
    pictures(tmp_path / "pictures", 51, 66)
    said = exported(tmp_path, recipe("{type: MobileNetV2, num_classes: 3}", 40, resize))
    assert ("where CenterCrop cuts off an odd number of rows" in said) == ("CenterCrop" in resize)
    rows = predicted(tmp_path)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    for row in rows:
        image = Image.open(tmp_path / row["file"])
        with torch.no_grad():
            found = model(**processor(image, return_tensors="pt")).logits.softmax(-1)[0]
        expected = torch.tensor([float(row[f"p({name})"]) for name in NAMES])
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)  # a resized pixel may be rounded to its neighbour
    settings = json.loads((tmp_path / "out/preprocessor_config.json").read_text())
    assert settings["do_normalize"] and settings["image_mean"] == MEAN and settings["do_resize"] == ("Resize" in resize)


def test_what_an_image_processor_cannot_say_is_named_and_no_file_says_something_else(tmp_path):
    pictures(tmp_path / "pictures", 40, 40)
    said = exported(tmp_path, recipe("{type: ResNet18, num_classes: 3}", 40, "{type: Resize, size: 40, interpolation: nearest}"))
    assert "transformers' image processors cannot say what the evaluation does to pictures: Resize with interpolation: nearest" in said
    assert not (tmp_path / "out/preprocessor_config.json").exists()
    assert "Resize with interpolation: nearest" in (tmp_path / "out/README.md").read_text()
    transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    for change, reason in (("dataset.eval.image_transforms=[{type: CenterCrop, size: 40}, {type: Resize, size: [40, 40]}]", "Resize, which image processors do in another order"),
                           ("dataset.eval.image_transforms=[{type: Pad, padding: 1}]", "Pad, which image processors do not have")):
        trainrun(tmp_path, "recipe.yaml", change, "output_dir=other", "checkpoint.resume=no")
        assert reason in trainrun(tmp_path, "export", "other", "--format", "huggingface", "--output", "b")
        subprocess.run(["rm", "-r", "other", "b"], cwd=tmp_path, check=True)


def test_several_labels_and_gray_pictures(tmp_path):
    pictures(tmp_path / "pictures", 32, 32)
    said = exported(tmp_path, recipe("{type: ResNet18, num_classes: 3}", 32, data=", mode: L").replace(str(MEAN), "[0.5]").replace(str(STD), "[0.5]"))
    assert "mode: L, since pipelines read pictures in colour" in said
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    assert model.config.num_channels == 1
    row = predicted(tmp_path)[0]
    image = torchvision.transforms.functional.to_tensor(Image.open(tmp_path / row["file"]).convert("L")).sub(0.5).div(0.5)[None]
    with torch.no_grad():
        found = model(image).logits.softmax(-1)[0]
    torch.testing.assert_close(found, torch.tensor([float(row[f"p({name})"]) for name in NAMES]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("layer, said", [
    ("{type: MobileNetV3Small, num_classes: 3}", "has no such layer; write --format safetensors for the weights by their state names (torchvision's"),
    ("{type: EfficientNetB0, num_classes: 3}", "one of the vision models ResNet18 to ResNet152"),
    ("{type: ResNet18, num_classes: 3, stem: cifar}", 'ResNet18: transformers\' model has no stem: "cifar"; write --format safetensors'),
    ("{type: MobileNetV2, num_classes: 3, width_mult: 0.5}", "transformers' model has no width_mult: 0.5"),
    ("{type: ResNet18, num_classes: 8}, {type: Linear, out_features: 3}", "has no such layer"),
])
def test_what_transformers_cannot_hold_is_refused(tmp_path, layer, said):
    pictures(tmp_path / "pictures", 32, 32, count=1)
    (tmp_path / "recipe.yaml").write_text(recipe(layer, 32))
    trainrun(tmp_path, "recipe.yaml", "evaluation.every=null")
    assert said in trainrun(tmp_path, "export", "run", "--format", "huggingface", "--output", "out", code=1)
    assert not (tmp_path / "out").exists()
