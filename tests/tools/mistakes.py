"""Deliberate mistakes of a new user, and what each must be told: the table of mistakes_test.py.

A row is (what is done wrong, the recipe as edited, the message), and where it takes more than `validate`: the verb and further arguments. A recipe is GOOD
with (old, new) replacements, or a text of its own. A message is looked for in standard error; of several, each.
"""

import io
from typing import NamedTuple

import numpy

GOOD = """version: 1
name: mistakes
model:
  layers:
    - Flatten
    - {type: Linear, out_features: 32}
    - ReLU
    - {type: Linear, out_features: 10}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: Digits, split: train}
  eval: {type: Digits, split: test}
dataloader: {batch_size: 32}
optimizer: {type: AdamW, lr: 1e-3}
scheduler: {type: LinearWithWarmup, warmup_steps: 10}
training: {num_epochs: 1}
checkpoint: {every: epoch}
"""

TABLE = """version: 1
name: mistakes
model:
  layers: [{type: Linear, out_features: 2}]
loss: CrossEntropyLoss
dataset:
  train: {type: CSV, path: DATA, label: y}
dataloader: {batch_size: 2}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
checkpoint: {every: null}
"""


class Mistake(NamedTuple):
    """One row. `data` becomes a file, at whose path DATA stands in the recipe and in `arguments`; `recipe` None: no recipe is named."""

    what: str
    recipe: object
    message: object
    verb: str = "validate"
    arguments: tuple = ()
    data: object = None
    exit_code: int = 2


def edited(*replacements):
    text = GOOD
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def change(what, old, new, message, *arguments):
    """A mistake of one place in GOOD."""
    return Mistake(what, edited((old, new)), message, arguments=arguments)


def override(what, argument, message):
    """A mistake on the command line."""
    return Mistake(what, GOOD, message, arguments=(argument,))


def table(what, data, message, old="label: y", new="label: y", verb="run", exit_code=1):
    """A mistake in a CSV file, or in what is said of it."""
    assert old in TABLE
    return Mistake(what, TABLE.replace(old, new, 1), message, verb=verb, data=data, exit_code=exit_code)


def archive(**arrays):
    """The bytes of an .npz file."""
    file = io.BytesIO()
    numpy.savez(file, **arrays)
    return file.getvalue()


SEQUENCES = archive(input_ids=numpy.zeros((8, 12), numpy.int64), label=numpy.zeros((8, 12), numpy.int64))
OF_SEQUENCES = """model: {layers: [{type: Embedding, num_embeddings: 9, embedding_dim: 4}, {type: Linear, out_features: 9}]}
loss: CrossEntropyLoss
dataset: {train: {type: TensorFile, path: DATA}}
optimizer: SGD
training: {max_steps: 1}
"""

SYNTAX = [
    change("a brace left open", "lr: 1e-3}", "lr: 1e-3", ":15:12: this '{' is never closed"),
    change("a brace left open in a list", "out_features: 32}", "out_features: 32", ":6:7: this '{' is never closed"),
    change("a bracket left open", "[Accuracy]", "[Accuracy", ":10:10: this '[' is never closed"),
    change("a brace left open at the end", "{every: epoch}", "{every: epoch", ":18:13: this '{' is never closed"),
    change("a quote left open", "name: mistakes", "name: 'mistakes", ":2:7: name: this quote is never closed"),
    change("a non-breaking space", "training: {", "training:\u00a0{", ":17:10: a non-breaking space (U+00A0)"),
    change("a non-breaking space after a dash", "- ReLU", "-\u00a0ReLU", ":7:6: a non-breaking space (U+00A0)"),
    change("an ideographic space", "loss: Cross", "loss:\u3000Cross", "an ideographic space (U+3000)"),
    change("a zero-width space", "loss: Cross", "loss: \u200bCross", "a zero-width space (U+200B)"),
    change("a tab", "    - ReLU", "\t- ReLU", ":7:1: a tab in the indentation"),
    change("no space after a colon", "batch_size: 32", "batch_size:32", "there is no space after the colon of 'batch_size:32'"),
    change("no space after a key", "loss: CrossEntropyLoss", "loss:CrossEntropyLoss", "there is no space after the colon of 'loss:CrossEntropyLoss'"),
    change("a key twice", "loss: Cross", "seed: 1\nseed: 2\nloss: Cross", ":10:1: seed: duplicate key; the first is on line 9"),
    change("a comma too many", "{batch_size: 32}", "{batch_size: 32, , shuffle: true}", "there is nothing before this comma"),
    change("a comma too few", "{type: AdamW, lr", "{type: AdamW lr", "expected ',' or '}'"),
    change("a wrong indentation", "    - ReLU", "   - ReLU", ":7:4: this line fits nothing above it; check its indentation"),
    change("a closing bracket too many", "[Accuracy]", "[Accuracy]]", "']' closes nothing here"),
    change("a reference without quotes", "{every: epoch}", "{every: ${seed}}", "a text with ${…} must be in quotes"),
    change("an alias of nothing", "{every: epoch}", "*missing", "no anchor &missing before this alias"),
    change("a second document", "checkpoint:", "---\ncheckpoint:", "a second document begins here; a recipe is one document"),
    change("a Windows path in double quotes", "{every: epoch}", '{every: epoch, resume: "C:\\data"}', "unknown escape in a text in double quotes"),
    Mistake("an empty file", "", "the file is empty; expected a mapping (key: value)"),
    Mistake("a list at the top", "- a\n- b\n", "a recipe is a mapping (key: value), found a list"),
    Mistake("a Python program", "import torch\n", "a recipe is a mapping"),
    Mistake("not text", b"\xff\xfe\x00binary", "not UTF-8; save the file as UTF-8"),
]

NAMES = [
    change("learning_rate", "lr: 1e-3", "learning_rate: 1e-3", "optimizer.learning_rate: unknown parameter of AdamW; did you mean lr?"),
    change("learning_rate in training", "num_epochs: 1", "num_epochs: 1, learning_rate: 0.1", "training.learning_rate: unknown parameter of training; write optimizer.lr instead"),
    change("lr at the top", "loss: Cross", "lr: 0.1\nloss: Cross", ":9:1: lr: unknown key; write optimizer.lr instead"),
    change("epochs", "num_epochs: 1", "epochs: 1", "training.epochs: unknown parameter of training; did you mean num_epochs?"),
    change("epochs at the top", "loss: Cross", "epochs: 3\nloss: Cross", "epochs: unknown key; write training.num_epochs instead"),
    change("batch_size at the top", "loss: Cross", "batch_size: 3\nloss: Cross", "batch_size: unknown key; write dataloader.batch_size instead"),
    change("per_device_train_batch_size", "batch_size: 32", "per_device_train_batch_size: 32", "unknown parameter of dataloader; did you mean batch_size?"),
    change("per_device_train_batch_size in training", "num_epochs: 1", "num_epochs: 1, per_device_train_batch_size: 8", "write dataloader.batch_size instead"),
    change("warmup_steps in training", "num_epochs: 1", "num_epochs: 1, warmup_steps: 8", "write scheduler.warmup_steps instead"),
    change("weight_decay at the top", "loss: Cross", "weight_decay: 0.1\nloss: Cross", "write optimizer.weight_decay instead"),
    change("seed in training", "num_epochs: 1", "num_epochs: 1, seed: 8", "training.seed: unknown parameter of training; write seed instead"),
    change("layers at the top", "model:\n  layers:", "layers:", ["layers: unknown key; write model.layers instead"]),
    change("save_steps in checkpoint", "{every: epoch}", "{save_steps: 10}", "checkpoint.save_steps: unknown parameter of checkpoint; did you mean every?"),
    change("logging_steps at the top", "loss: Cross", "logging_steps: 10\nloss: Cross", "write logging.every_steps instead"),
    change("criterion", "loss: Cross", "criterion: Cross", "criterion: unknown key; did you mean loss?"),
    change("optim", "optimizer: {", "optim: {", "optim: unknown key; did you mean optimizer?"),
    change("lr_scheduler", "scheduler: {", "lr_scheduler: {", "lr_scheduler: unknown key; did you mean scheduler?"),
    change("val", "  eval: {", "  val: {", "dataset.val: unknown parameter of dataset; did you mean eval?"),
    change("no such key", "batch_size: 32", "pin_memory: true", ["dataloader.pin_memory: unknown parameter of dataloader; known: batch_size, eval_batch_size, micro_batch_size, shuffle"]),
    change("a misspelled parameter", "out_features: 32", "out_featurs: 32", "model.layers[1].out_featurs: unknown parameter of Linear; did you mean out_features?"),
    change("a parameter of another layer", "- ReLU", "- {type: ReLU, slope: 0.1}", "model.layers[2].slope: unknown parameter of ReLU; known: inplace"),
    change("Keras's Dense", "- {type: Linear, out_features: 32}", "- {type: Dense, units: 32}", "model.layers[1]: unknown layer 'Dense'; did you mean Linear?"),
    change("a layer in lower case", "- ReLU", "- relu", "unknown layer 'relu'; did you mean ReLU?"),
    change("torch.nn's full name", "- ReLU", "- torch.nn.ReLU", "did you mean ReLU?"),
    change("a layer that nobody knows", "- ReLU", "- Quux12345", "unknown layer 'Quux12345'; `trainrun list layer` names all that there are"),
    change("F1Score", "[Accuracy]", "[F1Score]", "metrics[0]: unknown metric 'F1Score'; did you mean F1?"),
    change("accuracy in lower case", "[Accuracy]", "[accuracy]", "unknown metric 'accuracy'; did you mean Accuracy?"),
    change("a folder of images that is not there", "train: {type: Digits, split: train}", "train: {type: ImageFolder, root: photos}",
           "ImageFolder: there is no folder photos; `root` is the folder that holds the classes' folders"),
    change("ImageNet", "train: {type: Digits, split: train}", "train: {type: ImageNet, root: data}", ["unknown dataset 'ImageNet'", "ImageFolder"]),
    change("a loss's old name", "CrossEntropyLoss", "CrossEntropy", "unknown loss 'CrossEntropy'; did you mean CrossEntropyLoss?"),
    change("an optimizer's wrong case", "AdamW", "adamw", "unknown optimizer 'adamw'; did you mean AdamW?"),
    change("Hydra's _target_", "{type: AdamW,", "{_target_: AdamW,", "did you mean type instead of _target_?"),
    change("wandb", "checkpoint:", "logging: {report_to: [wandb]}\ncheckpoint:", "unknown logger 'wandb'; known: console, csv, jsonl, mlflow, tensorboard"),
    change("view", "- Flatten", "- {type: View, shape: [64]}", ["unknown layer 'View'", "Reshape"]),
    change("a monitor that is none", "{every: epoch}", "{every: epoch, keep_best: {monitor: eval/acc}}", "evaluations have no 'eval/acc'; did you mean eval/accuracy?"),
    change("a layer's name that is none", "- ReLU", "- {type: ReLU, inputs: hidden}", "no earlier layer and no field of the batch is called 'hidden'"),
]

KINDS_OF_VALUES = [
    change("a number as text", "lr: 1e-3", "lr: fast", "optimizer.lr: expected a number, found 'fast'"),
    change("a number in quotes", "lr: 1e-3", "lr: '1e-3'", "optimizer.lr: expected a number, found '1e-3'; write it without quotes"),
    change("a number with a comma", "lr: 1e-3", "lr: '0,001'", "optimizer.lr: expected a number"),
    change("a fraction for a count", "batch_size: 32", "batch_size: 32.5", "dataloader.batch_size: expected an integer"),
    change("zero for a count", "batch_size: 32", "batch_size: 0", "dataloader.batch_size: must be >= 1 and <= 1000000000, is 0"),
    change("a negative rate", "lr: 1e-3", "lr: -1", "optimizer.lr: must be >= 0, is -1"),
    change("yes for true", "batch_size: 32", "batch_size: 32, shuffle: yes", "dataloader.shuffle: expected true or false, found 'yes'; write true"),
    change("true in quotes", "batch_size: 32", "batch_size: 32, shuffle: 'true'", "write it without quotes"),
    change("a probability above one", "- ReLU", "- {type: Dropout, p: 50}", "model.layers[2].p: must be"),
    change("a number with an underscore", "batch_size: 32", "batch_size: 1_000", "write 1000"),
    change("a hexadecimal number", "batch_size: 32", "batch_size: 0x20", "write it in decimal"),
    change("a wrong choice", "split: train", "split: training", "'training' is not one of train, test"),
    change("a wrong precision", "checkpoint:", "mixed_precision: float16\ncheckpoint:", "mixed_precision: 'float16' is not one of no, bf16, fp16"),
    change("a number for a name", "name: mistakes", "name: 12", "name: expected a string, found 12; put it in quotes if it is meant as text"),
    change("a list for a mapping", "optimizer: {type: AdamW, lr: 1e-3}", "optimizer:\n  - type: AdamW\n  - lr: 1e-3", "optimizer: expected an optimizer (NAME or {type: NAME, …}), found a list; write its keys without the dashes before them, or in { } in place of [ ]"),
    change("a list for a section", "{batch_size: 32}", "[batch_size: 32]", "dataloader: expected a mapping, found a list; write its keys without the dashes before them, or in { } in place of [ ]"),
    change("dashes in training", "training: {num_epochs: 1}", "training:\n  - num_epochs: 1\n  - max_steps: 2", "training: expected a mapping, found a list; write its keys without the dashes before them, or in { } in place of [ ]"),
    change("a data set in a list", "train: {type: Digits, split: train}", "train: [{type: Digits, split: train}]", "without the dash, or the brackets, around it"),
    change("a mapping for a list", "  layers:\n    - Flatten\n    - {type: Linear, out_features: 32}\n    - ReLU\n    - {type: Linear, out_features: 10}", "  layers: {type: Linear, out_features: 10}", "model.layers: expected a list"),
    change("one metric without brackets", "[Accuracy]", "Accuracy", "; write [Accuracy]"),
    change("nothing for a section", "training: {num_epochs: 1}", "training:", "training: expected a mapping"),
    change("betas as one number", "lr: 1e-3", "lr: 1e-3, betas: 0.9", "optimizer.betas: expected a list of 2 numbers, found 0.9"),
    change("a version of tomorrow", "version: 1", "version: 2", "version: must be 1, is 2"),
]

MISSING = [
    change("no model", "model:\n  layers:\n    - Flatten\n    - {type: Linear, out_features: 32}\n    - ReLU\n    - {type: Linear, out_features: 10}\n", "", "model is missing"),
    change("no loss", "loss: CrossEntropyLoss\n", "", "loss is missing"),
    change("no optimizer", "optimizer: {type: AdamW, lr: 1e-3}\n", "", "optimizer is missing"),
    change("no length", "training: {num_epochs: 1}", "training: {}", "training needs num_epochs or max_steps"),
    change("no type", "{type: AdamW, lr: 1e-3}", "{lr: 1e-3}", "optimizer: an optimizer needs a type: {type: NAME, …}"),
    change("no out_features", "{type: Linear, out_features: 32}", "Linear", "model.layers[1]: Linear needs out_features"),
    change("no layers", "  layers:\n    - Flatten\n    - {type: Linear, out_features: 32}\n    - ReLU\n    - {type: Linear, out_features: 10}", "  layers: []", "a model needs at least one layer"),
    Mistake("keep_best without evaluations", edited(("  eval: {type: Digits, split: test}\n", ""), ("{every: epoch}", "{keep_best: {monitor: eval/loss}}")),
            "checkpoint.keep_best.monitor: there are no evaluations to watch: add dataset.eval"),
]

SHAPES = [
    change("fewer outputs than classes, before an activation", "- {type: Linear, out_features: 10}", "- {type: Linear, out_features: 4}\n    - ReLU",
           "the output has 4 classes, but the labels have 10; write model.layers[3].out_features: 10"),
    change("fewer outputs than classes, of a whole model", "    - Flatten\n    - {type: Linear, out_features: 32}\n    - ReLU\n    - {type: Linear, out_features: 10}",
           "    - {type: ResNet18, num_classes: 2, stem: cifar}", "the output has 2 classes, but the labels have 10; write model.layers[0].num_classes: 10"),
    change("fewer outputs than classes, of no layer alone", "- {type: Linear, out_features: 10}", "- {type: Linear, out_features: 8}\n    - {type: Reshape, shape: [4, 2]}\n    - {type: Mean, dim: 2}",
           "RECIPE:11:7: loss: CrossEntropyLoss does not fit [N, 4] and [N]: the output has 4 classes, but the labels have 10; the output must have 10"),
    change("an image into Linear", "    - Flatten\n", "", "CrossEntropyLoss does not fit [N, 1, 8, 10] and [N]"),
    change("in_features that do not fit", "out_features: 32", "in_features: 100, out_features: 32",
           "Linear does not fit its input [N, 64] from model.layers[0] (Flatten, RECIPE:5:7): in_features is 100, but the input has 64"),
    change("a convolution after Flatten", "{type: Linear, out_features: 32}", "{type: Conv2d, out_channels: 4, kernel_size: 3}", "it needs [N, C, H, W], not [N, 64]"),
    change("a kernel larger than the image", "- Flatten", "- {type: Conv2d, out_channels: 4, kernel_size: 9}\n    - Flatten", "a window of 9 does not fit an input of 8"),
    change("too many poolings", "- Flatten", "- {type: MaxPool2d, kernel_size: 2, repeat: 4}\n    - Flatten", "a window of 2 does not fit an input of 1"),
    change("classes that are fewer than the labels", "out_features: 10", "out_features: 5", "RECIPE:9:7: loss: CrossEntropyLoss does not fit [N, 5] and [N]: the output has 5 classes, but the labels have 10; write model.layers[3].out_features: 10"),
    change("MSELoss of classes", "CrossEntropyLoss", "MSELoss", "MSELoss does not fit [N, 10] and [N]"),
    Mistake("classes in the last dimension", OF_SEQUENCES, "CrossEntropyLoss does not fit [N, 12, 9] and [N, 12]: classes are the last dimension of [N, 12, 9], the loss wants them second; write loss: CausalLMLoss where they are the next tokens, else class_dim: -1 in the loss", data=SEQUENCES),
    change("heads that do not divide", "- Flatten", "- {type: Reshape, shape: [8, 8]}\n    - {type: MultiheadAttention, num_heads: 3, batch_first: true}\n    - Flatten", "3 heads do not divide the 8 features of the input"),
]

COMMAND_LINE = [
    override("an option for a value", "--lr=3", "there is no option --lr; a recipe's values are changed without dashes: optimizer.lr=3"),
    override("an option for a value, apart", "--epochs", "training.num_epochs=VALUE"),
    override("a path as an option", "--optimizer.lr=3", "a recipe's values are changed without dashes: optimizer.lr=3"),
    override("a value without its section", "lr=3", "command line:1:1: lr: unknown key; write optimizer.lr instead"),
    override("a value without an equals sign", "optimizer.lr", "'optimizer.lr' has no '='; write key=value"),
    override("a misspelled key", "optimizer.weight_decey=1", "optimizer.weight_decey: unknown parameter of AdamW"),
    override("a layer that is not there", "model.layers[9].out_features=3", "model.layers has 4 items, counted from 0; there is no [9]"),
    override("a wrong type", "dataloader.batch_size=big", "command line:1:23: dataloader.batch_size: expected an integer, found 'big'"),
    override("a list by its dots", "model.layers.1.out_features=3", "model.layers is a list; name an item of it"),
    override("base on the command line", "base=x.yaml", "base cannot be set on the command line"),
    Mistake("no such file", None, "no_such.yaml:1:1: no such file", arguments=("no_such.yaml",)),
    Mistake("a misspelled file", None, "did you mean recipes/mnist_cnn.yaml?", arguments=("recipes/mnist_cn.yaml",)),
    Mistake("a folder", None, "this is a folder, not a recipe", arguments=("recipes",)),
    Mistake("no recipe", None, "recipe is required"),
    Mistake("a verb that is none", None, "there is no file or verb 'train'; did you mean run?", verb="train", arguments=("recipes/digits_mlp.yaml",)),
    Mistake("a misspelled verb", None, "there is no file or verb 'validat'; did you mean validate?", verb="validat", arguments=("recipes/digits_mlp.yaml",)),
    Mistake("another program's verb", None, "there is no file or verb 'infer'; did you mean predict?", verb="infer"),
    Mistake("a word that is neither a verb nor a recipe", None, ["there is no file or verb 'xyzzy'; verbs: run, ", "explain"], verb="xyzzy"),
    Mistake("list of a kind that is none", None, "did you mean optimizers?", verb="list", arguments=("optimisers",)),
    Mistake("list of a component that is none", None, "there is no 'Conv2D'; did you mean Conv2d?", verb="list", arguments=("Conv2D",)),
    Mistake("eval of a folder that is no run", None, "recipes", verb="eval", arguments=("recipes",), exit_code=1),
    Mistake("eval of nothing", None, "no/such/run", verb="eval", arguments=("no/such/run",), exit_code=1),
    change("a plugin that is not there", "name: mistakes", "name: mistakes\nplugins: [lib/no.so]", "there is no plugin"),
    change("a base that is not there", "name: mistakes", "name: mistakes\nbase: no_base.yaml", "no_base.yaml"),
    change("a variable that is not set", "name: mistakes", "name: \"${env:TRAINRUN_TEST_NO_SUCH_VARIABLE}\"", "TRAINRUN_TEST_NO_SUCH_VARIABLE"),
    change("a reference to nothing", "name: mistakes", "name: \"${nam}\"", "nam"),
]

NOTES = [
    change("more outputs than classes", "out_features: 10", "out_features: 12",
           "note: RECIPE:9:7: loss: the output that CrossEntropyLoss reads has 12 classes, but 'label' of dataset.train has only 10, so that the others never come; write model.layers[3].out_features: 10"),
    change("metrics without a data set for evaluation", "  eval: {type: Digits, split: test}\n", "", "metrics: are never computed: there is no dataset.eval to evaluate on"),
    change("a learning rate of 0", "lr: 1e-3", "lr: 0", "note: RECIPE:15:30: optimizer.lr: is 0: the weights will not change"),
    change("a learning rate of 100", "lr: 1e-3", "lr: 100", "optimizer.lr: is 100, which is very large for AdamW"),
    change("a tiny learning rate", "lr: 1e-3", "lr: 1e-12", "optimizer.lr: is 1e-12, which is too small to change weights in float32"),
    change("a Transformer over the batch", "- Flatten", "- {type: Reshape, shape: [8, 8]}\n    - {type: TransformerEncoder, num_layers: 1, nhead: 2}\n    - Flatten", "write batch_first: true"),
]

TABLES = [
    table("a table that is not there", None, "no/such.csv", "path: DATA", "path: no/such.csv", exit_code=2),
    table("a label that is no column", "a,b\n1,0\n2,1\n", "DATA.csv:1:y: there is no such column; known: a, b", exit_code=2),
    table("a word among numbers", "a,y\n1,0\nx,1\n", ["3", "x"]),
    table("a missing value", "a,y\n1,0\n,1\n", ["3"]),
    table("a row too short", "a,b,y\n1,2,0\n3,1\n", ["3"]),
    table("a row too long", "a,y\n1,0\n2,1,5\n", ["3"]),
    table("an empty table", "", "DATA", exit_code=2),
    table("a header alone", "a,y\n", "DATA"),
    table("a feature that is no column", "a,y\n1,0\n", "DATA.csv:1:c: there is no such column; known: a, y", "label: y", "label: y, features: [c]", exit_code=2),
    table("a quote left open in a table", 'a,y\n1,0\n"2,1\n', ["DATA"]),
    table("a folder for a table", None, "expected a file, found a folder", "path: DATA", "path: recipes", exit_code=2),
]

FILES = [
    Mistake("MNIST that is not there", edited(("train: {type: Digits, split: train}", "train: {type: MNIST, root: no/such, split: train}"), ("eval: {type: Digits, split: test}", "eval: {type: MNIST, root: no/such, split: test}")),
            ["MNIST: no file train-images-idx3-ubyte (there is no folder no/such)", "download: true"], verb="run", exit_code=1),
    Mistake("a checkpoint that is not there", edited(("{every: epoch}", "{every: epoch, resume: no/such}")), "no/such", verb="run", exit_code=1),
    Mistake("weights that are not there", edited(("model:\n", "model:\n  weights: no/such.safetensors\n")), 
            "RECIPE:4:12: model.weights: there is no file or folder no/such.safetensors; paths are relative to the current directory"),
    Mistake("weights that are not there, for a run", edited(("model:\n", "model:\n  weights: {path: no/such.pth, strict: false}\n")),
            "RECIPE:4:19: model.weights.path: there is no file or folder no/such.pth", verb="run"),
    Mistake("a folder without weights", edited(("model:\n", "model:\n  weights: recipes\n")),
            "RECIPE:4:12: model.weights: recipes: has no weights: none of model.safetensors,"),
    Mistake("a frozen model's weights that are not there", edited(("loss: Cross", "models: {teacher: {layers: [Flatten, {type: Linear, out_features: 10}], weights: no/such.pt}}\nloss: Cross")),
            "RECIPE:9:82: models.teacher.weights: there is no file or folder no/such.pt"),
    Mistake("weights that are none", edited(("model:\n", "model:\n  weights: DATA.safetensors\n")), "DATA", verb="run", data="not a safetensors file at all", exit_code=1),
    Mistake("a tensor file that is none", edited(("train: {type: Digits, split: train}", "train: {type: TensorFile, path: DATA}"), ("  eval: {type: Digits, split: test}\n", ""), ("metrics: [Accuracy]\n", "")), "DATA", data="no tensors", exit_code=2),
    Mistake("a GPU that is not there", edited(("checkpoint:", "device: cuda:99\ncheckpoint:")), "cuda:99", verb="run", exit_code=1),
    Mistake("processes without a way to share", edited(("checkpoint:", "num_processes: 2\ncheckpoint:")), "several processes need a distributed_type, such as MULTI_CPU"),
]

ROWS = SYNTAX + NAMES + KINDS_OF_VALUES + MISSING + SHAPES + COMMAND_LINE + NOTES + TABLES + FILES
