#include "runner/init/array_draft.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/tensors/files/tensor_file.h"
#include "runner/base/text.h"
#include "runner/init/image_draft.h"
#include "runner/init/table_draft.h"

namespace trainrun {
namespace {

constexpr std::array kTargets = {"label", "labels", "y", "target", "targets", "class"};
constexpr std::array kInputs = {"image", "images", "x", "features", "data", "input", "inputs"};

/// The arrays that are read, by their names in the file.
struct ArrayPlan {
  std::string path;
  std::string input, target;            // of the training data
  std::string eval_input, eval_target;  // "": a part is held out
  std::vector<int64_t> shape;           // of a sample
  bool is_bytes = false;
  bool is_class = true;
  int64_t outputs = 1;
  bool is_flat = false;  // numbers are given as [N]
  int64_t samples = 0;
  bool stratifies = false;
  std::map<std::string, int64_t> counts;

  bool has_channels_last() const { return shape.size() == 3 && shape[0] > 4 && (shape[2] == 1 || shape[2] == 3); }
  bool is_picture() const { return shape.size() == 3 || (shape.size() == 2 && is_bytes); }
  std::string field() const { return is_picture() ? "image" : "features"; }
  int64_t trained() const { return eval_input.empty() ? samples * 4 / 5 : samples; }
};

const TensorFile::Entry* entry_of(const TensorFile& file, const std::string& name) {
  for (const TensorFile::Entry& entry : file.entries()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes) + "]";
}

std::string arrays_text(const TensorFile& file) {
  std::vector<std::string> texts;
  for (const TensorFile::Entry& entry : file.entries()) texts.push_back(entry.name + " " + shape_text(entry.shape));
  return join_first(std::move(texts), 12, LeftOut::kCount);
}

/// Those of `names` that the file has, whatever their letters' case.
template <size_t N>
std::vector<std::string> named_so(const TensorFile& file, const std::array<const char*, N>& names) {
  std::vector<std::string> found;
  for (const TensorFile::Entry& entry : file.entries()) {
    if (std::ranges::find(names, lower_ascii(entry.name)) != names.end()) found.push_back(entry.name);
  }
  return found;
}

void choose_arrays(const TensorFile& file, const InitOptions& options, ArrayPlan& plan) {
  if (entry_of(file, "x_train") && entry_of(file, "y_train")) {
    plan.input = "x_train";
    plan.target = "y_train";
    if (entry_of(file, "x_test") && entry_of(file, "y_test")) plan.eval_input = "x_test", plan.eval_target = "y_test";
    return;
  }
  if (file.entries().size() == 1)
    throw Error(plan.path + ": holds one array, " + arrays_text(file) +
                "; another with what is to be predicted has to be in the same file (numpy.savez)");
  const auto targets = options.target ? std::vector<std::string>{*options.target} : named_so(file, kTargets);
  if (targets.size() != 1 || !entry_of(file, targets[0])) {
    throw Error(plan.path + ": which array is to be predicted? There are " + arrays_text(file) +
                "; write --target and its name");
  }
  plan.target = targets[0];
  std::vector<std::string> others;
  for (const TensorFile::Entry& entry : file.entries()) {
    if (entry.name != plan.target) others.push_back(entry.name);
  }
  const auto inputs = others.size() == 1 ? others : named_so(file, kInputs);
  if (inputs.size() != 1) {
    throw Error(plan.path + ": which array is to be learnt from? There are " + arrays_text(file) +
                "; call it x, or keep it and the target alone in the file");
  }
  plan.input = inputs[0];
}

void look_at_target(TensorFile& file, const InitOptions& options, ArrayPlan& plan, Draft& draft) {
  size_t number = 0;
  while (file.entries()[number].name != plan.target) ++number;
  at::Tensor target = file.read(number);
  if (target.dim() == 2 && target.size(1) == 1 && !at::isFloatingType(target.scalar_type()))
    target = target.select(1, 0);
  const bool is_float = at::isFloatingType(target.scalar_type());
  plan.is_class = options.task ? *options.task == "classification" : !is_float && target.dim() == 1;
  if (!plan.is_class) {
    if (target.dim() > 2)
      throw Error(plan.path + ": " + plan.target + " has a shape for each sample, " +
                  shape_text(entry_of(file, plan.target)->shape) + "; `init` knows classes and rows of numbers");
    plan.outputs = target.dim() == 2 ? target.size(1) : 1;
    plan.is_flat = target.dim() == 1;
    return;
  }
  if (is_float || target.dim() != 1)
    throw Error(plan.path + ": " + plan.target +
                " holds no class numbers: classes are whole numbers from 0, [N] int64");
  const at::Tensor classes = target.to(at::kLong);
  if (classes.min().item<int64_t>() < 0)
    throw Error(plan.path + ": " + plan.target +
                " holds negative numbers; classes are numbered from 0, and --task regression predicts numbers");
  plan.outputs = classes.max().item<int64_t>() + 1;
  constexpr int64_t kMostClasses = 10000;
  if (plan.outputs > kMostClasses)
    throw Error(plan.path + ": " + plan.target + " has numbers up to " + grouped(plan.outputs - 1) +
                ", too many for classes; write --task regression");
  const at::Tensor counts = classes.bincount({}, plan.outputs);
  int64_t rarest = plan.samples;
  for (int64_t i = 0; i < plan.outputs; ++i) {
    const auto count = counts[i].item<int64_t>();
    if (count > 0) plan.counts[std::to_string(i)] = count;
    rarest = std::min(rarest, count);
  }
  plan.stratifies = rarest >= 5;
  if (rarest == 0)
    draft.doubts.push_back("some numbers below " + std::to_string(plan.outputs) + " are no sample's class");
}

std::string net_of(const ArrayPlan& plan) {
  if (plan.is_picture()) {
    std::string first;
    int64_t side = std::min(plan.shape[plan.shape.size() - 1], plan.shape[plan.shape.size() - 2]);
    if (plan.shape.size() == 2) first = commented("    - {type: Unsqueeze, dim: 1}", "one channel");
    if (plan.has_channels_last()) {
      first = commented("    - {type: Permute, dims: [0, 3, 1, 2]}", "channels come first");
      side = std::min(plan.shape[0], plan.shape[1]);
    }
    return picture_layers(side, plan.outputs, plan.is_class ? "a logit for each class" : "", first);
  }
  const std::string comment = plan.is_class ? "a logit for each class" : "";
  if (plan.shape.size() == 1 || plan.shape.empty()) return mlp_layers(plan.trained(), plan.outputs, comment);
  return "  layers:\n" +
         commented("    - {type: GRU, hidden_size: 64, batch_first: true, bidirectional: true}",
                   "step by step, from either end") +
         "    - {type: Mean, dim: 1}\n" +
         commented("    - {type: Linear, out_features: " + std::to_string(plan.outputs) + "}", comment);
}

std::string layers_of(const ArrayPlan& plan) {
  return net_of(plan) + (plan.is_flat ? commented("    - {type: Squeeze, dim: 1}", "[N], as the target") : "");
}

std::string array_recipe(const ArrayPlan& plan, const std::string& name, int64_t batch_size) {
  const bool unbalanced = is_unbalanced(plan.counts);
  std::string text = heading("Predicts " + plan.target + " from " + plan.input + " of " + plan.path + ", " +
                             grouped(plan.samples) + " samples");
  text += "version: 1\nname: " + recipe_word(name) + "\nseed: 1\n\nmodel:\n" + layers_of(plan);
  text += plan.is_class ? "loss: CrossEntropyLoss\n" + metrics_text(unbalanced) : "loss: MSELoss\nmetrics: [MAE, R2]\n";
  const auto data = [&](const std::string& input, const std::string& target) {
    return "type: TensorFile, path: " + recipe_word(plan.path) + ", fields: {" + plan.field() + ": " +
           recipe_word(input) + ", label: " + recipe_word(target) + "}" +
           (plan.is_class ? ", num_classes: " + std::to_string(plan.outputs) : "");
  };
  text += "\ndataset:\n";
  if (plan.eval_input.empty()) {
    const std::string split =
        std::string(", split: {fractions: [0.8, 0.2]") + (plan.stratifies ? ", stratify: true" : "") + ", part: ";
    text += "  train: &arrays {" + data(plan.input, plan.target) + split + "train}}\n  eval: {<<: *arrays" + split +
            "validation}}\n";
  } else {
    text +=
        "  train: {" + data(plan.input, plan.target) + "}\n  eval: {" + data(plan.eval_input, plan.eval_target) + "}\n";
  }
  std::vector<std::string> transforms;
  if (!plan.is_picture()) transforms.push_back(plan.shape.size() > 1 ? "{type: Standardize, dim: -1}" : "Standardize");
  if (!plan.is_class) transforms.emplace_back("{type: Standardize, field: label}");
  if (!transforms.empty()) text += "  transforms: [" + join(transforms) + "]\n";
  return text + mlp_training(plan.trained(), batch_size);
}

}  // namespace

Draft draft_arrays(const std::string& path, const InitOptions& options) {
  const std::unique_ptr<TensorFile> file = open_tensor_file(path);
  Draft draft;
  ArrayPlan plan;
  plan.path = path;
  choose_arrays(*file, options, plan);
  const TensorFile::Entry& input = *entry_of(*file, plan.input);
  const TensorFile::Entry& target = *entry_of(*file, plan.target);
  if (input.shape.empty() || target.shape.empty() || input.shape[0] != target.shape[0]) {
    throw Error(path + ": " + plan.input + " " + shape_text(input.shape) + " and " + plan.target + " " +
                shape_text(target.shape) + " have to have a row for each sample, equally many");
  }
  plan.samples = input.shape[0];
  plan.shape.assign(input.shape.begin() + 1, input.shape.end());
  plan.is_bytes = input.dtype == at::kByte;
  if (plan.shape.size() > 3)
    throw Error(path + ": " + plan.input + " has samples of " + shape_text(plan.shape) +
                "; `init` knows rows, series and pictures");
  if (plan.shape.empty())
    throw Error(path + ": " + plan.input + " has one number for each sample, [N]; a row of them is needed, [N, 1]");
  look_at_target(*file, options, plan, draft);
  draft.seen.push_back(path + ": " + arrays_text(*file));
  draft.seen.push_back("learnt from: " + plan.input + ", " + grouped(plan.samples) + " samples of " +
                       shape_text(plan.shape) +
                       (plan.is_picture()        ? ", taken as pictures"
                        : plan.shape.size() == 2 ? ", taken as series: steps, then numbers"
                                                 : ""));
  draft.seen.push_back("predicted: " + plan.target + ", " +
                       (plan.is_class ? std::to_string(plan.counts.size()) + " classes: " + counts_text(plan.counts)
                                      : counted(plan.outputs, "number", "numbers")));
  draft.seen.push_back(plan.eval_input.empty()
                           ? "split: 80 % of the samples to train, the others to evaluate, drawn at random" +
                                 std::string(plan.stratifies ? ", each class in its share" : "")
                           : "split: evaluated on " + plan.eval_input);
  draft.batch_size = mlp_batch_size(plan.trained());
  draft.recipe = [plan, name = options.name](int64_t batch_size) { return array_recipe(plan, name, batch_size); };
  return draft;
}

}  // namespace trainrun
