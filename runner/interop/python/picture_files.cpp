#include <nlohmann/json.hpp>

#include <filesystem>

#include "registry/image_data/image_files.h"
#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"

// Pictures that are files, read one by one.

namespace trainrun::python {
namespace {

constexpr const char* kCifar = R"(def load_cifar10(names):
    """Images [N, 3, 32, 32] and labels [N] of the binary version."""
    rows = np.concatenate([np.fromfile(f"{DATA_FOLDER}/{name}.bin", np.uint8).reshape(-1, 3073) for name in names])
    images = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy())
    return {"image": images, "label": torch.from_numpy(rows[:, 0].astype(np.int64))}
)";

constexpr const char* kPictures = R"(class Pictures(Dataset):
    """Images and labels of a torchvision data set, by name."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        image, label = self.samples[index]
        return {"image": image, "label": label}
)";

constexpr const char* kSegmentation = R"(class Segmentation(Dataset):
    """Images, and masks with the class of every pixel, which are transformed alike."""

    endings = (".jpg", ".jpeg", ".png", ".webp", ".bmp")

    def __init__(self, images, masks, transform, image_suffix="", mask_suffix=""):
        named = (path for path in Path(images).rglob("*") if path.stem.endswith(image_suffix) and path.is_file())
        self.images = sorted(path for path in named if path.suffix.lower() in self.endings and "/." not in f"/{path.relative_to(images)}")
        names = [path.relative_to(images).with_name(path.stem.removesuffix(image_suffix) + mask_suffix + ".png") for path in self.images]
        self.masks = [Path(masks, name) for name in names]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = tv_tensors.Image(Image.open(self.images[index]).convert("RGB"))
        mask = tv_tensors.Mask(np.array(Image.open(self.masks[index])))
        image, mask = self.transform(image, mask)
        return {"image": image.as_subclass(torch.Tensor), "mask": mask.as_subclass(torch.Tensor).long()}
)";

constexpr const char* kPets = R"(class Pets(Dataset):
    """Photographs of cats and dogs, and their breeds."""

    def __init__(self, split, transform):
        lines = Path(DATA_FOLDER, "annotations", f"{split}.txt").read_text().splitlines()
        self.rows = [line.split() for line in lines if not line.startswith("#")]
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        name, breed, *_ = self.rows[index]
        image = Image.open(Path(DATA_FOLDER, "images", f"{name}.jpg")).convert("RGB")
        return {"image": self.transform(image), "label": int(breed) - 1}
)";

std::vector<std::string> steps_of(const Component<DatasetKind>& set, const std::string& first) {
  std::vector<std::string> steps;
  if (!first.empty()) steps.push_back(first);
  const Value* transforms = set.written.find("image_transforms");
  for (const Value& one : transforms ? transforms->items() : std::vector<Value>())
    steps.push_back(image_transform(one));
  return steps;
}

Data read_one_by_one(const DataSource& source, const std::string& first, std::set<std::string> known) {
  known.insert({"image_transforms", "broken", "cache"});
  for (const auto* set : {&source.train, source.eval}) {
    if (!set) continue;
    source.allow(*set, known);
    if (set->attributes.value("broken", std::string()) == "skip") {
      source.file.note(set->path + ": files that cannot be read are an error in the program");
    }
  }
  Data data;
  data.is_tensors = false;
  data.reads_pipelines = true;
  data.bytes = {"image"};
  data.by_pixel = {"image"};
  data.train_steps = steps_of(source.train, first);
  if (source.eval) data.eval_steps = steps_of(*source.eval, first);
  source.file.import("from torch.utils.data import Dataset");
  if (source.recipe.dataloader.num_workers > 1)
    data.loader_arguments = ", num_workers=" + std::to_string(source.recipe.dataloader.num_workers);
  return data;
}

/// "'streets/images', 'streets/masks', augment", and suffixes where there are some.
std::string mask_arguments(const DataSource& source, const Component<DatasetKind>& set, const std::string& transform) {
  const auto word = [&set](const char* key) { return set.attributes.at(key).get<std::string>(); };
  const auto folder = [&](const char* key) { return folder_within(word("root"), word(key)); };
  if (is_within(folder("masks"), folder("images"))) {
    source.file.refuse(set.place, set.path, "a program is written for masks in another folder than the images' alone");
  }
  std::string arguments =
      quoted(folder("images").string()) + ", " + quoted(folder("masks").string()) + ", " + transform;
  for (const char* key : {"image_suffix", "mask_suffix"}) {
    if (!word(key).empty()) arguments += std::string(", ") + key + "=" + quoted(word(key));
  }
  return arguments;
}

}  // namespace

Data cifar_data(const DataSource& source) {
  for (const auto* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"root", "split", "download", "mirrors"});
  }
  source.file.import("import numpy as np");
  source.file.constant("DATA_FOLDER",
                       quoted(source.train.attributes.at("root").get<std::string>() + "/cifar-10-batches-bin"));
  source.file.define("load_cifar10", kCifar);
  Data data;
  data.bytes = {"image"};
  data.by_pixel = {"image"};
  const auto call = [](const Component<DatasetKind>* set) -> std::string {
    if (!set) return "";
    const bool is_test = set->attributes.at("split") == "test";
    return std::string("load_cifar10(") +
           (is_test ? "[\"test_batch\"]" : "[f\"data_batch_{i}\" for i in range(1, 6)]") + ")";
  };
  data.statements = calls(call(&source.train), call(source.eval));
  return data;
}

Data image_folder_data(const DataSource& source) {
  Data data = read_one_by_one(source, "v2.PILToTensor()", {"root", "unknown_classes"});
  source.file.import("from torchvision.datasets import ImageFolder");
  source.file.define("Pictures", kPictures);
  const auto call = [](const Component<DatasetKind>* set, const std::string& transform) {
    return set ? "Pictures(ImageFolder(" + literal(set->attributes.at("root")) + ", " + transform + "))" : "";
  };
  data.statements = calls(call(&source.train, "augment"), call(source.eval, "prepare_image"));
  return data;
}

Data segmentation_data(const DataSource& source) {
  Data data = read_one_by_one(source, "", {"root", "images", "masks", "image_suffix", "mask_suffix", "num_classes"});
  for (const char* line : {"import numpy as np", "from pathlib import Path", "from PIL import Image",
                           "from torchvision import tv_tensors"}) {
    source.file.import(line);
  }
  source.file.define("Segmentation", kSegmentation);
  const auto call = [&source](const Component<DatasetKind>* set, const std::string& transform) {
    return set ? "Segmentation(" + mask_arguments(source, *set, transform) + ")" : "";
  };
  data.statements = calls(call(&source.train, "augment"), call(source.eval, "prepare_image"));
  return data;
}

Data pets_data(const DataSource& source) {
  Data data = read_one_by_one(source, "v2.PILToTensor()", {"root", "split"});
  for (const char* line : {"from pathlib import Path", "from PIL import Image"}) source.file.import(line);
  source.file.constant("DATA_FOLDER", literal(source.train.attributes.at("root")));
  source.file.define("Pets", kPets);
  const auto call = [](const Component<DatasetKind>* set, const std::string& transform) {
    return set ? "Pets(" + literal(set->attributes.at("split")) + ", " + transform + ")" : "";
  };
  data.statements = calls(call(&source.train, "augment"), call(source.eval, "prepare_image"));
  return data;
}

}  // namespace trainrun::python
