"""The jobs of the table as PyTorch's users write them: a model, a data loader, a loss, an optimizer and a schedule."""

import dataclasses
import gzip
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH.parent.parent / "tests" / "parity")]


@dataclasses.dataclass
class Wish:
    """What is asked of a task."""

    data: pathlib.Path
    batch: int
    steps: int
    bf16: bool = False
    layout: str = "first"  # of the channels of images
    workers: int | None = None  # of the loader; None: as many as the job has
    samples: int | None = None  # of the training data; None: all
    width: int | None = None  # channels of the first convolution
    depth: int | None = None  # layers
    rank: int = 0
    ranks: int = 1


@dataclasses.dataclass
class Task:
    model: nn.Module
    train: DataLoader
    optimizer: torch.optim.Optimizer
    loss: Callable  # (model, batch) -> scalar
    scheduler: object = None
    clip: float | None = None
    accumulation: int = 1
    evaluation: DataLoader | None = None


class Mnist(Dataset):
    """Images held as bytes, a transform for each sample, as torchvision's data sets do."""

    def __init__(self, folder: pathlib.Path, part: str, transform):
        images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
        self.images = torch.tensor(np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28))
        self.labels = torch.tensor(np.frombuffer(labels, np.uint8, offset=8)).long()
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def normalized(image: torch.Tensor) -> torch.Tensor:
    return image.float().div(255).sub(0.1307).div(0.3081)


def plain(image: torch.Tensor) -> torch.Tensor:
    return image.float().div(255)


def loader_of(wish: Wish, data: Dataset, shuffle: bool, workers: int, **more) -> DataLoader:
    if wish.samples:
        data = Subset(data, range(wish.samples))
    sampler = DistributedSampler(data, shuffle=shuffle) if wish.ranks > 1 else None
    return DataLoader(data, batch_size=wish.batch, shuffle=shuffle and not sampler, sampler=sampler,
                      num_workers=workers if wish.workers is None else wish.workers, **more)


def image_loss(wish: Wish) -> Callable:
    memory_format = torch.channels_last if wish.layout == "last" else torch.contiguous_format

    def loss(model, batch):
        images, labels = batch
        return cross_entropy(model(images.to(memory_format=memory_format)), labels)

    return loss


def in_layout(model: nn.Module, wish: Wish) -> nn.Module:
    return model.to(memory_format=torch.channels_last) if wish.layout == "last" else model


def mnist_cnn(wish: Wish) -> Task:
    channels = wish.width or 32
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(169 * channels, 128), nn.ReLU(), nn.Linear(128, 10))
    train = loader_of(wish, Mnist(wish.data / "mnist", "train", normalized), shuffle=True, workers=2)
    test = DataLoader(Mnist(wish.data / "mnist", "t10k", normalized), batch_size=128, num_workers=2 if wish.workers is None else wish.workers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda t: min(t / 500, (15000 - t) / 14500))
    return Task(model, train, optimizer, image_loss(wish), scheduler, evaluation=test)


def mnist_wide_cnn(wish: Wish) -> Task:
    model = nn.Sequential(nn.Conv2d(1, 512, 3), nn.MaxPool2d(2), nn.Conv2d(512, 256, 5), nn.MaxPool2d(2), nn.Dropout2d(0.1), nn.AdaptiveMaxPool2d(1),
                          nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    train = loader_of(wish, Mnist(wish.data / "mnist", "train", plain), shuffle=False, workers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Task(in_layout(model, wish), train, optimizer, image_loss(wish), lr_scheduler.OneCycleLR(optimizer, 2.5e-3, total_steps=2345))


def mlp(wish: Wish) -> Task:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    train = loader_of(wish, Mnist(wish.data / "mnist", "train", plain), shuffle=False, workers=0)
    return Task(model, train, torch.optim.AdamW(model.parameters(), lr=1e-4), image_loss(wish))


def image_task(make: Callable[[], nn.Module], size: int) -> Callable[[Wish], Task]:
    def task(wish: Wish) -> Task:
        import torchvision
        from torchvision.transforms import v2

        model = in_layout(make(), wish)
        transform = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
        train = loader_of(wish, torchvision.datasets.ImageFolder(wish.data / f"images_{size}", transform), shuffle=False, workers=2)
        return Task(model, train, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), image_loss(wish))

    return task


def resnet18() -> nn.Module:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


def resnet50() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50(num_classes=10)


def vgg11() -> nn.Module:
    import torchvision

    return torchvision.models.vgg11(num_classes=10)


def unet() -> nn.Module:
    from vision_models import UNet

    return nn.Sequential(UNet(10, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class ViT(nn.Module):
    """A small Vision Transformer over patches of 4x4, with positions of sines and the mean over positions, as Beyer et al. 2022 have it."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 4, 4)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, nn.LayerNorm(384), enable_nested_tensor=False)
        self.head = nn.Linear(384, 10)
        angles = torch.arange(64)[:, None] * torch.exp(torch.arange(0, 384, 2) * (-np.log(10000.0) / 384))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float())

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.encoder(x).mean(dim=1))


class Windows(IterableDataset):
    """nanoGPT's get_batch: windows that begin anywhere in the text."""

    def __init__(self, ids: np.ndarray, context: int, batch: int):
        super().__init__()
        self.ids, self.context, self.batch = ids, context, batch

    def __iter__(self):
        while True:
            begins = torch.randint(len(self.ids) - self.context, (self.batch,))
            yield (torch.stack([torch.from_numpy(self.ids[i: i + self.context].astype(np.int64)) for i in begins]),
                   torch.stack([torch.from_numpy(self.ids[i + 1: i + 1 + self.context].astype(np.int64)) for i in begins]))


def nanogpt(wish: Wish) -> Task:
    import nano_gpt

    text = (wish.data / "tinyshakespeare" / "input.txt").read_text()
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = np.array([numbers[c] for c in text[: len(text) * 9 // 10]], dtype=np.uint16)
    model = nano_gpt.GPT(len(numbers), wish.depth or nano_gpt.LAYERS)
    torch.manual_seed(1337 + wish.rank)
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=nano_gpt.RATE, betas=(0.9, 0.99))
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: nano_gpt.rate(step) / nano_gpt.RATE)
    train = DataLoader(Windows(ids, nano_gpt.CONTEXT, wish.batch), batch_size=None)
    return Task(model, train, optimizer, lambda model, batch: model(*batch), scheduler, clip=1.0)


def mrpc_minilm(wish: Wish) -> Task:
    import transformers
    from accelerate_mrpc import pairs

    tokenizer = transformers.AutoTokenizer.from_pretrained(wish.data / "minilm")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(wish.data / "minilm", num_labels=2)
    rows = pairs(wish.data / "mrpc" / "msr_paraphrase_train.txt")
    samples = tokenizer([row[1] for row in rows], [row[2] for row in rows], truncation=True, max_length=128)
    encoded = [{name: samples[name][i] for name in samples} | {"labels": row[0]} for i, row in enumerate(rows)]
    train = loader_of(wish, encoded, shuffle=False, workers=0, collate_fn=lambda batch: tokenizer.pad(batch, padding="longest", return_tensors="pt"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 100, 765)
    return Task(model, train, optimizer, lambda model, batch: model(**batch).loss, scheduler)


def gpt2_clm(wish: Wish) -> Task:
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(wish.data / "gpt2" / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(wish.data / "gpt2")
    text = (wish.data / "tinyshakespeare" / "input.txt").read_text()
    ids = torch.tensor(tokenizer(text[: len(text) * 9 // 10])["input_ids"])
    blocks = ids[: len(ids) // 512 * 512].view(-1, 512)
    train = loader_of(wish, [{"input_ids": block, "labels": block} for block in blocks], shuffle=False, workers=0, collate_fn=transformers.default_data_collator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 0, 1000)
    return Task(model, train, optimizer, lambda model, batch: model(**batch).loss, scheduler, clip=1.0, accumulation=2)


TASKS: dict[str, Callable[[Wish], Task]] = {
    "mnist_cnn": mnist_cnn, "mnist_wide_cnn": mnist_wide_cnn, "mlp": mlp, "nanogpt": nanogpt, "mrpc_minilm": mrpc_minilm, "gpt2_clm": gpt2_clm,
    "resnet18": image_task(resnet18, 32), "resnet50": image_task(resnet50, 64), "vgg11": image_task(vgg11, 64), "unet": image_task(unet, 64),
    "vit_s": image_task(ViT, 32),
}
SEEDS = {"nanogpt": 1337}


def make(name: str, wish: Wish) -> Task:
    torch.manual_seed(SEEDS.get(name, 42))
    task = TASKS[name](wish)
    task.model.train()  # `from_pretrained` returns a model in evaluation mode; Lightning's Trainer leaves it there, and would train without dropout
    return task
