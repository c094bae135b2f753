#include "runner/interop/python/transforms.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "runner/interop/python/options.h"

namespace trainrun::python {
namespace {

using nlohmann::json;
using TransformList = std::vector<const Component<TransformKind>*>;

/// Of single images, which torchvision has under the same names: those that draw and keep the image's size, and the others.
const std::set<std::string>& drawn_of_images() {
  static const std::set<std::string> names = {"AugMix",
                                              "AutoAugment",
                                              "ColorJitter",
                                              "GaussianBlur",
                                              "RandAugment",
                                              "RandomAffine",
                                              "RandomCrop",
                                              "RandomErasing",
                                              "RandomGrayscale",
                                              "RandomHorizontalFlip",
                                              "RandomPerspective",
                                              "RandomRotation",
                                              "RandomVerticalFlip",
                                              "TrivialAugmentWide"};
  return names;
}
const std::set<std::string>& of_images() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all = drawn_of_images();
    all.insert({"CenterCrop", "Pad", "RandomResizedCrop", "Resize"});
    return all;
  }();
  return names;
}

/// Of whole batches.
const std::set<std::string>& of_batches() {
  static const std::set<std::string> names = {"Copy", "CutMix", "GaussianNoise", "Mixup", "Triplets"};
  return names;
}

std::string field_of(const Component<TransformKind>& transform) {
  return transform.attributes.value("field", std::string("image"));
}

std::string list_literal(const json& numbers) {
  const std::string text = literal(numbers.is_array() ? numbers : json::array({numbers}));
  return "[" + text.substr(1, text.size() - 2) + "]";
}

std::string trimmed(std::string list) {  // (0.5,) is a tuple's way to say one
  const size_t at = list.rfind(",]");
  return at == std::string::npos ? list : list.replace(at, 2, "]");
}

constexpr const char* kStandardization = R"(def mean_and_std(values, dim=1):
    """Of the entries along a dimension, over all samples."""
    rows = values.double().movedim(dim, 0).flatten(1)
    std = rows.std(1, unbiased=False)
    shape = [-1] + [1] * (values.dim() - 1 - dim % values.dim())
    return rows.mean(1).to(values.dtype).view(shape), torch.where(std == 0, 1, std).to(values.dtype).view(shape)
)";

constexpr const char* kTriplets = R"(def add_triplets(batch):
    """For each sample another one of its class, and one of another class."""
    labels = batch["LABEL"]
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    others = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    alone = ~others.any(1, keepdim=True)
    positives = torch.multinomial(torch.where(alone, same, others).float(), 1).flatten()
    negatives = torch.multinomial((~same).float(), 1).flatten()
    samples = batch["FIELD"]
    return batch | {"POSITIVE": samples[positives], "NEGATIVE": samples[negatives]}
)";

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

class TransformWriter {
 public:
  TransformWriter(const Recipe& recipe, Data& data, const DatasetInfo& info, SourceFile& file)
      : recipe_(recipe), data_(data), info_(info), file_(file) {}

  Transforms write() {
    TransformList common = list_of(recipe_.dataset.transforms);
    TransformList train = list_of(recipe_.dataset.train_transforms);
    TransformList eval = list_of(recipe_.dataset.eval_transforms);
    check(train);
    check(eval);
    check(common);
    const bool changes_images =
        contains(train, of_images()) || contains(eval, of_images()) || contains(common, of_images());
    has_eval_ = recipe_.dataset.eval && recipe_.evaluation.every;
    if (!changes_images && data_.is_tensors) {
      batch_function(train, common, "train", result_.train_batch);
      batch_function(eval, common, "eval", result_.eval_batch);
      at_load(train, eval, common);
    } else {
      result_.train_pipeline = pipeline(train, common, true);
      result_.eval_pipeline = has_eval_ ? pipeline(eval, common, false) : "";
      batch_function(train, common, "train", result_.train_batch);
      batch_function(eval, common, "eval", result_.eval_batch);
    }
    return result_;
  }

 private:
  static TransformList list_of(const std::vector<Component<TransformKind>>& all) {
    TransformList list;
    for (const auto& one : all) list.push_back(&one);
    return list;
  }
  static bool contains(const TransformList& list, const std::set<std::string>& names) {
    return std::any_of(list.begin(), list.end(), [&](const auto* one) { return names.contains(one->type); });
  }

  void check(const TransformList& list) {
    for (const auto* one : list) {
      const bool known = of_images().contains(one->type) || of_batches().contains(one->type) ||
                         one->type == "Normalize" || one->type == "Standardize";
      if (!known) file_.refuse(one->place, one->path, "no program is written for the transform " + one->type);
      if (of_images().contains(one->type) && field_of(*one) != "image") {
        file_.refuse(one->place, one->path, "transforms of images are written for the field image alone");
      }
    }
  }

  /// Statements for both sets of tensors.
  void at_load(const TransformList& train, const TransformList& eval, const TransformList& common) {
    TransformList once = common;
    if (!train.empty() || !eval.empty()) {
      for (const auto* one : train) {
        if (!of_batches().contains(one->type))
          file_.refuse(one->place, one->path,
                       "this transform of the training data alone is not written; write it in dataset.transforms");
      }
    }
    std::vector<std::string> body;
    for (const std::string& field : data_.bytes) body.push_back(in_data(field) + " = " + in_data(field) + " / 255");
    for (const auto* one : once) {
      if (of_batches().contains(one->type)) break;  // what comes after is done to batches, too
      if (one->type == "Normalize") normalize(*one, body);
      if (one->type == "Standardize") standardize(*one, body);
    }
    for (const std::string& field : data_.wide) body.push_back(in_data(field) + " = " + in_data(field) + ".float()");
    if (body.empty()) return;
    if (!has_eval_ && !recipe_.dataset.fold) {
      for (std::string line : body) result_.statements.push_back(replaced(std::move(line), "data[", "train_data["));
      return;
    }
    result_.statements.push_back("for data in (train_data, eval_data):");
    for (const std::string& line : body) result_.statements.push_back("    " + line);
  }

  static std::string in_data(const std::string& field) { return "data[" + quoted(field) + "]"; }

  void constants(const Component<TransformKind>& transform) {
    file_.constant("MEAN", trimmed(list_literal(transform.attributes.at("mean"))));
    file_.constant("STD", trimmed(list_literal(transform.attributes.at("std"))));
  }

  void normalize(const Component<TransformKind>& transform, std::vector<std::string>& body) {
    constants(transform);
    const std::string field = in_data(field_of(transform));
    const size_t count = transform.attributes.at("mean").is_array() ? transform.attributes.at("mean").size() : 1;
    if (count == 1) {
      body.push_back(field + " = (" + field + " - MEAN[0]) / STD[0]");
    } else {
      body.push_back(field + " = (" + field +
                     " - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)");
    }
  }

  void standardize(const Component<TransformKind>& transform, std::vector<std::string>& body) {
    file_.define("mean_and_std", kStandardization);
    const std::string field =
        field_of(transform) == "image" ? std::string("features") : transform.attributes.at("field").get<std::string>();
    const auto dim = transform.attributes.at("dim").get<int64_t>();
    const std::string mean = field + "_mean";
    const std::string std = field + "_std";
    result_.statements.push_back(mean + ", " + std + " = mean_and_std(train_data[" + quoted(field) + "]" +
                                 (dim == 1 ? "" : ", dim=" + std::to_string(dim)) + ")");
    std::string text = in_data(field);
    if (transform.attributes.at("with_mean").get<bool>()) text = text + " - " + mean;
    if (transform.attributes.at("with_std").get<bool>()) text = "(" + text + ") / " + std;
    body.push_back(in_data(field) + " = " + text);
    data_.scalings[field] = {mean, std};
  }

  /// Pixels are divided, as by torchvision's ToTensor and by trainrun; v2.ToDtype multiplies them by 1 / 255, which is
  /// another number of the last bit. Masks beside images stay as they are.
  std::string to_unit_range() {
    file_.define("in_unit_range",
                 "def in_unit_range(image):\n    \"\"\"Bytes as numbers from 0 to 1.\"\"\"\n    return image / 255\n");
    return std::string("v2.Lambda(in_unit_range") + (info_.find("mask") ? ", tv_tensors.Image)" : ")");
  }

  std::string pipeline(const TransformList& own, const TransformList& common, bool training) {
    file_.import("from torchvision.transforms import v2");
    std::vector<std::string> items = training ? data_.train_steps : data_.eval_steps;
    TransformList all = own;
    all.insert(all.end(), common.begin(), common.end());
    bool is_float = !data_.bytes.contains("image");
    const auto to_float = [&] {
      if (!is_float) items.push_back(to_unit_range());
      is_float = true;
    };
    for (const auto* one : all) {
      if (of_batches().contains(one->type)) continue;
      if (one->type == "Standardize") {
        file_.refuse(one->place, one->path, "Standardize beside transforms of images is not written; use Normalize");
        continue;
      }
      if (one->type == "Normalize") {
        to_float();
        constants(*one);
        items.push_back("v2.Normalize(MEAN, STD)");
        continue;
      }
      items.push_back(image_transform(one->written));
    }
    to_float();
    if (items.empty()) return "";
    if (items.size() == 1) return items[0];
    std::string text = "v2.Compose([\n";
    for (const std::string& item : items) text += "    " + item + ",\n";
    return text + "])";
  }

  void batch_function(const TransformList& own, const TransformList& common, const std::string& part,
                      std::string& call) {
    TransformList all = own;
    all.insert(all.end(), common.begin(), common.end());
    std::string body;
    for (const auto* one : all) {
      if (one->type == "Normalize" && !body.empty()) {
        normalize_batch(*one, body);
      } else if (one->type == "Standardize" && !body.empty()) {
        file_.refuse(one->place, one->path, "Standardize is written before transforms of batches alone, such as Copy");
      } else if (one->type == "Copy") {
        body +=
            "    batch[" + literal(one->attributes.at("to")) + "] = batch[" + quoted(field_of(*one)) + "].clone()\n";
      } else if (one->type == "GaussianNoise") {
        noise(*one, body);
      } else if (one->type == "Triplets") {
        std::string text = replaced(kTriplets, "LABEL", one->attributes.at("label").get<std::string>());
        text = replaced(text, "FIELD", field_of(*one));
        text = replaced(text, "POSITIVE", one->attributes.at("positive").get<std::string>());
        text = replaced(text, "NEGATIVE", one->attributes.at("negative").get<std::string>());
        file_.define("add_triplets", text);
        body += "    batch = add_triplets(batch)\n";
      } else if (one->type == "Mixup" || one->type == "CutMix") {
        mix(*one, body);
      }
    }
    if (body.empty()) return;
    const bool is_common = own.empty();
    const std::string name = is_common ? "prepare" : "prepare_" + part;
    const std::string returned = body == "    batch = add_triplets(batch)\n" ? "" : "    return batch\n";
    if (returned.empty()) {
      call = "add_triplets(batch)";
      return;
    }
    file_.define(name, "def " + name + "(batch):\n" + body + returned);
    call = name + "(batch)";
  }

  static void normalize_batch(const Component<TransformKind>& one, std::string& body) {
    const std::string field = "batch[" + quoted(field_of(one)) + "]";
    const auto numbers = [&](const char* key) {
      const std::string list = trimmed(list_literal(one.attributes.at(key)));
      const bool is_one = list.find(',') == std::string::npos;
      return is_one ? list.substr(1, list.size() - 2) : "torch.tensor(" + list + ", device=DEVICE).view(-1, 1, 1)";
    };
    body += "    " + field + " = (" + field + " - " + numbers("mean") + ") / " + numbers("std") + "\n";
  }

  void noise(const Component<TransformKind>& one, std::string& body) {
    const std::string field = "batch[" + quoted(field_of(one)) + "]";
    const double sigma = one.attributes.at("sigma").get<double>();
    std::string text = field + (sigma == 0 ? "" : " + " + json(sigma).dump() + " * torch.randn_like(" + field + ")");
    if (one.attributes.value("mean", 0.0) != 0) text += " + " + one.attributes.at("mean").dump();
    if (one.attributes.value("clip", true)) text = "(" + text + ").clamp(0, 1)";
    if (text != field) body += "    " + field + " = " + text + "\n";
  }

  void mix(const Component<TransformKind>& one, std::string& body) {
    const FieldInfo* label = info_.find(one.attributes.at("label").get<std::string>());
    const int64_t classes = one.attributes.at("num_classes").is_number() ? one.attributes["num_classes"].get<int64_t>()
                            : label && label->shape.size() == 1          ? label->shape[0]
                                                                         : 0;
    file_.import("from torchvision.transforms import v2");
    const std::string name = one.type == "Mixup" ? "MixUp" : "CutMix";
    const std::string image = "batch[" + quoted(field_of(one)) + "]";
    const std::string target = "batch[" + literal(one.attributes.at("label")) + "]";
    body += "    " + image + ", " + target + " = v2." + name + "(alpha=" + one.attributes.at("alpha").dump() +
            ", num_classes=" + std::to_string(classes) + ")(" + image + ", " + target + ")\n";
    file_.note(one.place.to_string() + ": torchvision's " + name +
               " draws one proportion for a batch, trainrun one for each sample");
  }

  const Recipe& recipe_;
  Data& data_;
  const DatasetInfo& info_;
  SourceFile& file_;
  Transforms result_;
  bool has_eval_ = false;
};

}  // namespace

std::string image_transform(const Value& transform) {
  const Value* type = transform.is_map() ? transform.find("type") : &transform;
  std::string options;
  for (const auto& entry : transform.is_map() ? transform.entries() : std::vector<Value::Entry>()) {
    if (entry.key == "type" || entry.key == "field") continue;
    const bool is_enumerated = entry.key == "interpolation";
    const std::string value = is_enumerated ? "v2.InterpolationMode." + upper(entry.value.text())
                              : entry.value.is_list()
                                  ? trimmed("[" + literal(entry.value).substr(1, literal(entry.value).size() - 2) + "]")
                                  : literal(entry.value);
    options += (options.empty() ? "" : ", ") + entry.key + "=" + value;
  }
  return "v2." + type->text() + "(" + options + ")";
}

bool draws_and_keeps_size(const std::string& type) {
  return drawn_of_images().contains(type) || type == "CutMix" || type == "Mixup";
}

Transforms write_transforms(const Recipe& recipe, Data& data, const DatasetInfo& info, SourceFile& file) {
  return TransformWriter(recipe, data, info, file).write();
}

}  // namespace trainrun::python
