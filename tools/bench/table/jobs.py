"""The jobs of the table as recipes: what trainrun trains. peer_tasks.py has the same jobs as PyTorch's users write them."""

import dataclasses

IMAGES = """\
version: 1
model: {layers: LAYERS}
loss: CrossEntropyLoss
dataset: {train: {type: ImageFolder, root: "${env:TRAINRUN_DATA}/images_SIZE"}}
dataloader: {shuffle: false, num_workers: 2}
optimizer: {type: SGD, lr: 0.01, momentum: 0.9}
training: {max_steps: 1}
"""
UNET = "[{type: UNet, num_classes: 10, channels: 32, depth: 3}, {type: AdaptiveAvgPool2d, output_size: 1}, Flatten]"
# A small Vision Transformer over patches of 4x4, whose classes are read from the mean of its 64 positions.
VIT = """[{type: Conv2d, name: patches, out_channels: 384, kernel_size: 4, stride: 4}, {type: Flatten, start_dim: 2}, {type: Transpose, dim0: 1, dim1: 2},
  {type: PositionalEncoding, encoding: sinusoidal, max_len: 64, dropout: 0, batch_first: true},
  {type: TransformerEncoder, name: encoder, nhead: 6, num_layers: 12, dim_feedforward: 1536, dropout: 0, activation: gelu, batch_first: true, norm_first: true, norm: true},
  {type: Mean, dim: 1}, {type: Linear, name: head, out_features: 10}]"""
MLP = """\
version: 1
model: {layers: [Flatten, {type: Linear, out_features: 4096}, ReLU, {type: Linear, out_features: 4096}, ReLU, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
dataset: {train: {type: MNIST, root: "${env:TRAINRUN_DATA}/mnist", split: train}}
dataloader: {shuffle: false, num_workers: 0}
optimizer: {type: AdamW, lr: 1e-4}
training: {max_steps: 1}
"""
NO_CHECKPOINT = "checkpoint={every: null, keep_best: null}"


@dataclasses.dataclass(frozen=True)
class Job:
    """What a step is, and how many are made; the second half of them is timed."""

    name: str
    title: str
    batch: int
    steps: int
    seconds: float  # of a step of the slowest program, roughly, where a float32 product reaches 200 GFLOP/s: for estimates alone
    recipe: str = ""  # a recipe's text; else that of recipes/ with the job's name
    overrides: tuple = ()
    needs: tuple = ()  # folders that trainrun and its peers read
    accumulation: int = 1
    tokens: int = 0  # of a sample, where all are of one length
    losses_differ: str = ""  # why the losses are not comparable; "": they are
    stays: bool = True  # all batches are alike, so that peers do all rounds in one process; not where they fill the memory together
    has_layouts: bool = False  # peers may keep images with the channels last
    profiled: bool = False  # a step is short enough to be measured kernel by kernel


def image_job(name: str, title: str, layers: str, size: int, batch: int, seconds: float, **more) -> Job:
    recipe = IMAGES.replace("LAYERS", layers).replace("SIZE", str(size))
    return Job(name, title, batch, 6, seconds, recipe, needs=(f"images_{size}",), **more)


JOBS = {job.name: job for job in [
    Job("mnist_cnn", "the net of recipes/mnist_cnn.yaml, AdamW, batches of 32", 32, 600, 0.011, overrides=("dataloader.num_workers=2",), needs=("mnist",), profiled=True,
        losses_differ="the samples come in different orders"),
    image_job("resnet18", "ResNet-18 on 32x32, SGD, batches of 128", "[{type: ResNet18, num_classes: 10, stem: cifar}]", 32, 128, 2.4, has_layouts=True),
    Job("mnist_wide_cnn", "the net of recipes/mnist_wide_cnn.yaml, AdamW, batches of 128", 128, 6, 1.9,
        overrides=("dataloader.shuffle=false", "dataloader.num_workers=2", "scheduler.total_steps=2345"), needs=("mnist",), has_layouts=True),
    Job("nanogpt", "nanoGPT's setting for a CPU: 4 layers of 128 features, 12 windows of 64 characters", 12, 300, 0.04,
        needs=("tinyshakespeare",), tokens=64, losses_differ="the initial weights and the windows are drawn otherwise", profiled=True),
    Job("mrpc_minilm", "MRPC with MiniLM (6 layers of 384 features), AdamW, batches of 16 pairs", 16, 30, 0.3,
        overrides=("dataloader.shuffle=false", "scheduler.total_steps=765"), needs=("mrpc", "minilm"),
        stays=False, losses_differ="the classifier's initial weights and dropout are drawn otherwise"),
    image_job("resnet50", "ResNet-50 on 64x64, SGD, batches of 64", "[{type: ResNet50, num_classes: 10}]", 64, 64, 1.6, has_layouts=True),
    image_job("vgg11", "VGG-11 on 64x64, SGD, batches of 64", "[{type: VGG11, num_classes: 10}]", 64, 64, 1.9, has_layouts=True),
    image_job("unet", "a U-Net of depth 3 on 64x64, SGD, batches of 16", UNET, 64, 16, 1.4, has_layouts=True),
    image_job("vit_s", "ViT-S over patches of 4x4 of 32x32, SGD, batches of 32", VIT, 32, 32, 2.2),
    Job("gpt2_clm", "GPT-2 of 124 M parameters, AdamW, 2 x 2 blocks of 512 tokens", 2, 3, 16, needs=("tinyshakespeare", "gpt2"), accumulation=2, tokens=512,
        overrides=("dataset.train.block_size=512", "dataset.eval.block_size=512", "scheduler.total_steps=1000", "dataloader.shuffle=false"),
        stays=False, losses_differ="dropout is drawn otherwise"),
    Job("mlp", "an MLP of 20 M parameters, AdamW", 32, 16, 0.2, MLP, needs=("mnist",)),
]}


def recipe_of(job: Job) -> str | None:
    """The name of the project's recipe, where the job is one."""
    return None if job.recipe else {"nanogpt": "shakespeare_char"}.get(job.name, job.name)


def length_of(job: Job, steps: int, batch: int) -> list[str]:
    """Overrides: so many steps, in which nothing else happens. A schedule that the recipe has stays that of the whole job."""
    clip = ", max_grad_norm: 1.0" if job.name in ("nanogpt", "gpt2_clm") else ""
    words = [f"training={{max_steps: {steps}, gradient_accumulation_steps: {job.accumulation}{clip}}}", f"dataloader.batch_size={batch}",
             "evaluation.every=null", NO_CHECKPOINT, f"logging={{every_steps: {max(1, steps // 2)}, report_to: [jsonl]}}"]
    if job.name == "mnist_cnn":
        words.append("scheduler.total_steps=15000")
    if job.name == "nanogpt":
        words.append(f"dataset.train.num_samples={max(24000, steps * batch * 4)}")
    return words + list(job.overrides)
