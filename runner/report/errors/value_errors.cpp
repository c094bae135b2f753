#include "runner/report/errors/error_pages.h"

namespace trainrun {

void add_value_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add({ErrorCode::kUnknownKey,
       "unknown key",
       "A section or a component has no parameter of this name. Nothing in a recipe is ignored, so that no misspelled "
       "key passes for the default.",
       {"optimizer: {type: SGD, learning_rate: 0.1}"},
       "Write the name that the message suggests, or one of those that it lists. `trainrun list SGD` shows the "
       "parameters of a component; a key may also belong to another section.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kMissingKey,
       "a required key is missing",
       "A section or a component needs a parameter that has no default.",
       {"model:\n  layers: [Flatten, Linear]"},
       "Add the key at the place that the message names.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10}]"}});
  add({ErrorCode::kWrongType,
       "a value of the wrong type",
       "A number, a text, true or false, a list or a mapping was expected, and another of them stands there. A number "
       "in "
       "quotes is a text, and so is `0,1` with a comma.",
       {"optimizer: {type: SGD, lr: high}"},
       "Write a value of the type that the message names.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kOutOfRange,
       "a number outside its range",
       "The number is too small or too large for this parameter: a probability above 1, a size of 0, a negative rate.",
       {"optimizer: {type: SGD, lr: -0.1}"},
       "Write a number within the range that the message gives.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kNotAChoice,
       "none of the words that are allowed",
       "The parameter takes one of a few words, and this is not one of them.",
       {"loss: {type: CrossEntropyLoss, reduction: average}"},
       "Write one of the words that the message lists.",
       {"loss: {type: CrossEntropyLoss, reduction: mean}"}});
  add({ErrorCode::kEmpty,
       "empty, where something is needed",
       "A list or a text may not be empty here.",
       {"loss: []"},
       "Fill it in.",
       {"loss: [CrossEntropyLoss]"}});
  add({ErrorCode::kUnknownComponent,
       "no component of this name",
       "A layer, loss, metric, data set, optimizer or another component is named that trainrun does not have. Names "
       "are "
       "PyTorch's, letter for letter.",
       {"loss: CrossEntropy"},
       "Write the name that the message suggests; `trainrun list losses` prints all losses, and likewise for other "
       "kinds. A component of a plugin is known once `plugins:` names the plugin, and a block once `model.blocks` has "
       "it.",
       {"loss: CrossEntropyLoss"}});
  add({ErrorCode::kNoType,
       "a component without a type",
       "A component is written as its name, or as a mapping with its name under `type`.",
       {"optimizer: {lr: 0.1}"},
       "Add `type`.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kRule,
       "a value that a rule forbids",
       "The value has the right type, but a rule of its component or section forbids it, by itself or beside another "
       "value.",
       {"optimizer: {type: SGD, lr: 0.1, nesterov: true}"},
       "Change this value, or the other, as the message says.",
       {"optimizer: {type: SGD, lr: 0.1, momentum: 0.9, nesterov: true}"}});
  add({ErrorCode::kUnusable,
       "a name that cannot be used",
       "A name has characters, or a length, with which it cannot be a part of the names of figures or files, or it "
       "would "
       "be taken for another.",
       {"loss: {type: CrossEntropyLoss, name: a/b}"},
       "Choose another name, as the message says.",
       {"loss: {type: CrossEntropyLoss, name: a_b}"}});
  add({ErrorCode::kBadPattern,
       "not a regular expression",
       "Names of parameters are chosen by regular expressions, and this one cannot be read. A bracket that is meant as "
       "a "
       "character needs a backslash before it.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10}]\n  freeze: ['(weight']"},
       "Close the bracket, or write a backslash before it.",
       {"optimizer: {type: SGD, lr: 0.1, param_groups: [{match: 'bias$', lr: 0.2}]}"}});
  add({ErrorCode::kNoMatch,
       "a pattern that matches nothing",
       "No parameter, layer or module has a name in which this regular expression is found, so that the line would "
       "have "
       "no effect.",
       {"optimizer: {type: SGD, lr: 0.1, param_groups: [{match: 'biases$', lr: 0.2}]}"},
       "`trainrun explain RECIPE` shows the names of layers; those of parameters are the layer's, a dot, and `weight` "
       "or "
       "`bias`, as in Python's state dict.",
       {"optimizer: {type: SGD, lr: 0.1, param_groups: [{match: 'bias$', lr: 0.2}]}"}});
}

}  // namespace trainrun
