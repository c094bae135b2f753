#include "runner/report/errors/error_pages.h"

namespace trainrun {
namespace {

/// Layers of a model for the examples, one a line.
std::string model_of(const std::vector<std::string>& layers) {
  std::string text = "model:\n  layers:";
  for (const std::string& layer : layers) text += "\n    - " + layer;
  return text;
}

const char* const kLast = "{type: Linear, out_features: 10}";

void add_wiring_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add({ErrorCode::kLayerDoesNotFit,
       "a layer that does not fit its input",
       "The layer cannot be built for what reaches it, or cannot compute it: the number of dimensions or a size is "
       "another than it needs. The message gives the shape, and where it comes from.",
       {model_of({"Flatten", "{type: Conv2d, out_channels: 8, kernel_size: 3}", kLast})},
       "Put the layers in an order in which each reads what it needs, or leave sizes out that follow from the input "
       "(`in_features`, `in_channels`). `trainrun explain RECIPE` shows all shapes.",
       {model_of({"{type: Conv2d, out_channels: 8, kernel_size: 3}", "Flatten", kLast})}});
  add({ErrorCode::kUnknownName,
       "an input that nobody has",
       "`inputs:` names an earlier layer or a field of the batch, and there is none of this name.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, inputs: pixels}"})},
       "Write one of the names that the message suggests or lists. A layer has its number as its name, or the one that "
       "`name:` gives it; it must come before what reads it.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, inputs: '0'}"})}});
  add({ErrorCode::kNameTaken,
       "a name that is taken",
       "Two layers, or a layer and a block or a field of the batch, have the same name.",
       {model_of(
           {"Flatten", "{type: Linear, out_features: 32, name: fc}", "{type: Linear, out_features: 10, name: fc}"})},
       "Choose another name for one of the two.",
       {model_of({"Flatten", "{type: Linear, out_features: 32, name: fc}",
                  "{type: Linear, out_features: 10, name: head}"})}});
  add({ErrorCode::kBlock,
       "a block that cannot be put in",
       "A block of `model.blocks` uses itself, or reads another number of inputs than it gets.",
       {"model:\n  blocks: {loop: {layers: [{type: Linear, out_features: 10}, loop]}}\n  layers: [Flatten, loop]"},
       "Let the block name only layers and other blocks that do not use it in turn; `repeat: 3` puts a block in "
       "several times.",
       {"model:\n  blocks: {twice: {layers: [{type: Linear, out_features: 10}, ReLU]}}\n"
        "  layers: [Flatten, {type: twice, repeat: 2}]"}});
  add({ErrorCode::kOutputs,
       "more outputs than a layer has",
       "`outputs:` gives names to a layer's outputs, and there are more names than outputs.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, outputs: [scores, rest]}"})},
       "Name as many as there are, or fewer.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, outputs: [scores]}"})}});
  add({ErrorCode::kShared,
       "a layer that cannot be shared so",
       "`share:` makes two layers one module. There is no earlier layer of that name, or the two do not have the same "
       "options or sizes.",
       {model_of(
           {"Flatten", "{type: Linear, out_features: 64, name: a}", "{type: Linear, out_features: 10, share: a}"})},
       "Give both the same options, or name another layer.",
       {model_of(
           {"Flatten", "{type: Linear, out_features: 64, name: a}", "{type: Linear, out_features: 64, share: a}"})}});
}

void add_weight_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add({ErrorCode::kWeights,
       "initial weights that cannot be had",
       "The file under `weights`, or the folder under `pretrained`, is not there or is not in a form that can be read.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10}]\n  weights: no_such_file.safetensors"},
       "Mend the path, or leave it out to begin with random weights.",
       {model_of({"Flatten", kLast})}});
  add({ErrorCode::kAdapters,
       "a layer that is adapted and trained whole",
       "A layer is among those that adapters are put into, and among `modules_to_save`, which are trained as a whole.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10, name: head}]\n"
        "  adapters: {type: LoRA, r: 4, target: [head], modules_to_save: [head]}"},
       "Take it out of one of the two lists.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10, name: head}]\n"
        "  adapters: {type: LoRA, r: 4, target: [head]}"}});
  add({ErrorCode::kInitializer,
       "an initializer that does not fit a parameter",
       "The initializer cannot fill a parameter of this shape: some are for matrices only.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, init: [{match: bias, type: Orthogonal}]}"})},
       "Choose another initializer, or a pattern that leaves this parameter out.",
       {model_of({"Flatten", "{type: Linear, out_features: 10, init: [{match: weight, type: Orthogonal}]}"})}});
  add({ErrorCode::kCannotBeBuilt,
       "a component that cannot be built",
       "The component's parameters can be read, and yet it cannot be made of them. The message says what it found.",
       {"model:\n  layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, {type: BatchNorm2d, name: norm}, "
        "Flatten,\n"
        "    {type: Linear, out_features: 10, name: head}]\n  adapters: {type: LoRA, r: 4, target: [norm]}"},
       "Do as the message says.",
       {"model:\n  layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, {type: BatchNorm2d, name: norm}, "
        "Flatten,\n"
        "    {type: Linear, out_features: 10, name: head}]\n  adapters: {type: LoRA, r: 4, target: [head]}"}});
  add({ErrorCode::kBatchNorm,
       "a batch of one for a BatchNorm",
       "In training, BatchNorm takes the mean over the values of a channel. If a batch has one sample with one value "
       "for each channel, there is nothing to take a mean of.",
       {model_of({"Flatten", "{type: Linear, out_features: 32}", "BatchNorm1d", kLast}), "dataloader: {batch_size: 1}"},
       "Make batches larger, or leave out the last, small one: dataloader.drop_last=true.",
       {model_of({"Flatten", "{type: Linear, out_features: 32}", "BatchNorm1d", kLast}),
        "dataloader: {batch_size: 32}"}});
}

}  // namespace

void add_model_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add_wiring_errors(pages);
  add({ErrorCode::kNothingToTrain,
       "nothing to train",
       "The model has no parameters, all of them are frozen, or none has an influence on what the loss reads.",
       {model_of({"Flatten", kLast}) + "\n  freeze: ['.']"},
       "Let some parameters be trained.",
       {model_of({"Flatten", kLast})}});
  add({ErrorCode::kLossDoesNotFit,
       "a loss that does not fit what it reads",
       "The loss cannot be computed of the model's output and the target: another number of classes, other shapes, or "
       "another number of inputs. Without `inputs`, a loss reads the last layer's first output and the target.",
       {model_of({"Flatten", "{type: Linear, out_features: 9}"})},
       "Change the last layer's size as the message says, or name what the loss is to read under `inputs`.",
       {model_of({"Flatten", kLast})}});
  add({ErrorCode::kMetricDoesNotFit,
       "a metric that does not fit what it reads",
       "The metric cannot be computed of the model's output and the target.",
       {"metrics: [{type: TopKAccuracy, k: 20}]"},
       "Choose another metric or other parameters of it, or name what it is to read under `inputs`.",
       {"metrics: [{type: TopKAccuracy, k: 3}]"}});
  add({ErrorCode::kIndices,
       "numbers beyond an Embedding",
       "The data have more categories or tokens than the Embedding has rows.",
       {"dataset:\n  train: {type: Synthetic, num_samples: 64, shape: [4], num_classes: 10}",
        model_of({"{type: Embedding, num_embeddings: 5, embedding_dim: 4, inputs: label}", kLast})},
       "Give num_embeddings the number that the message says, or leave it out where it follows from the data.",
       {"dataset:\n  train: {type: Synthetic, num_samples: 64, shape: [4], num_classes: 10}",
        model_of({"{type: Embedding, num_embeddings: 10, embedding_dim: 4, inputs: label}", kLast})}});
  add_weight_errors(pages);
}

}  // namespace trainrun
