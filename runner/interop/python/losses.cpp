#include "runner/interop/python/losses.h"

#include <algorithm>
#include <map>

#include "runner/interop/python/options.h"

namespace trainrun::python {
namespace {

using LossComponent = Component<LossKind>;
using Variables = std::vector<std::string>;

/// What a loss is written from.
struct LossReading {
  const LossComponent& loss;
  const Variables& variables;
  const Wiring& wiring;
  SourceFile& file;

  const Wiring::Kind& kind(size_t i) const { return wiring.kinds.at(variables.at(i)); }
  bool has(size_t i) const { return i < variables.size() && wiring.kinds.contains(variables[i]); }
};

/// The arguments, labels as numbers of the output's shape.
std::string labels_as_numbers(const LossReading& in) {
  std::string text;
  for (size_t i = 0; i < in.variables.size(); ++i) {
    std::string variable = in.variables[i];
    if (i > 0 && in.has(i) && in.kind(i).is_integer) {
      const bool lacks_dim = in.kind(i).shape.empty() && in.kind(0).shape == std::vector<int64_t>{1};
      variable += lacks_dim ? ".unsqueeze(1).float()" : ".float()";
    }
    text += (i == 0 ? "" : ", ") + variable;
  }
  return text;
}

std::string plain_inputs(const LossReading& in) {
  std::string text;
  for (const std::string& variable : in.variables) text += (text.empty() ? "" : ", ") + variable;
  return text;
}

/// Class weights are tensors in PyTorch.
std::string options_of(const LossReading& in, const std::set<std::string>& without = {}) {
  auto options = written_options(in.loss, without);
  for (auto& option : options) {
    if (option.name != "weight" && option.name != "pos_weight") continue;
    option.value = Expression::code("torch.tensor(" + literal(in.loss.attributes[option.name]) +
                                    ", device=" + in.variables[0] + ".device)");
  }
  return further(options);
}

/// Classes that are the last dimension come second in PyTorch: [N, T, C] as rows [N * T, C].
std::string of_classes(const LossReading& in, const std::string& function, const std::set<std::string>& without) {
  const auto class_dim =
      in.loss.attributes.value("class_dim", in.loss.type == "CausalLMLoss" ? int64_t{-1} : int64_t{1});
  const size_t dims = in.kind(0).shape.size() + 1;
  std::string inputs = plain_inputs(in);
  if (class_dim != 1 && dims > 2) {
    const bool is_last = class_dim == -1 || class_dim == static_cast<int64_t>(dims) - 1;
    if (is_last && in.kind(1).is_integer) {
      inputs = in.variables[0] + ".flatten(0, -2), " + in.variables[1] + ".flatten()";
    } else {
      const std::string moved = ".movedim(" + std::to_string(class_dim) + ", 1)";
      inputs = in.variables[0] + moved + ", " + in.variables[1] + (in.kind(1).is_integer ? "" : moved);
    }
  }
  return "F." + function + "(" + inputs + options_of(in, without) + ")";
}

constexpr const char* kDice = R"(def dice_loss(output, target, smooth=1e-5, include_background=True, ignore_index=-100):
    """One less what regions have in common, for each sample and class (Milletari et al. 2016)."""
    counted = (target != ignore_index).flatten(1).unsqueeze(1)
    expected = F.one_hot(target.flatten(1).clamp(min=0), output.size(1)).movedim(-1, 1) * counted
    found = output.flatten(2).softmax(1) * counted
    if not include_background:
        found, expected = found[:, 1:], expected[:, 1:]
    common = (found * expected).sum(2)
    return (1 - (2 * common + smooth) / (found.sum(2) + expected.sum(2) + smooth)).mean()
)";

std::string dice(const LossReading& in) {
  if (in.kind(0).shape == in.kind(1).shape || in.loss.attributes.at("reduction") != "mean") {
    in.file.refuse(in.loss.place, in.loss.path, "a DiceLoss is written of class indices and as a mean alone");
  }
  in.file.define("dice_loss", kDice);
  return "dice_loss(" + plain_inputs(in) + further(written_options(in.loss)) + ")";
}

std::string gaussian_kl(const LossReading& in) {
  const std::string& mean = in.variables[0];
  const std::string& log_variance = in.variables[1];
  const std::string losses = "(" + mean + ".square() + " + log_variance + ".exp() - 1 - " + log_variance + ")";
  const std::string reduction = in.loss.attributes.at("reduction").get<std::string>();
  if (reduction == "mean") return "0.5 * " + losses + ".mean()";
  return "0.5 * " + losses + ".sum()" + (reduction == "sum" ? "" : " / len(" + mean + ")");
}

std::string ctc(const LossReading& in) {
  const bool batch_first = in.loss.attributes.at("batch_first").get<bool>();
  const std::string output = in.variables[0] + (batch_first ? ".transpose(0, 1)" : "");
  const std::string& length = in.variables.back();
  const std::string lengths = in.variables.size() == 4 ? in.variables[2]
                                                       : "torch.full_like(" + length + ", " + in.variables[0] +
                                                             ".size(" + (batch_first ? "1" : "0") + "))";
  return "F.ctc_loss(" + output + ", " + in.variables[1] + ", " + lengths + ", " + length +
         options_of(in, {"batch_first"}) + ")";
}

std::string quantiles(const LossReading& in) {
  const std::string levels = "torch.tensor(" + literal(in.loss.attributes.at("quantiles")) + ", device=output.device)";
  in.file.define("quantile_loss",
                 "def quantile_loss(output, target):\n"
                 "    levels = " +
                     levels +
                     "\n"
                     "    target = target if target.dim() == output.dim() else target.unsqueeze(-1)\n"
                     "    errors = target.float() - output\n"
                     "    return torch.maximum(levels * errors, (levels - 1) * errors)." +
                     (in.loss.attributes.at("reduction") == "sum" ? "sum" : "mean") + "()\n");
  return "quantile_loss(" + plain_inputs(in) + ")";
}

constexpr const char* kLogProbabilities = R"(def log_probabilities(logits, labels):
    """Of each text: what its answer's tokens have, added up."""
    each = logits.log_softmax(-1).gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
    return torch.where(labels >= 0, each, 0.0).sum(1)
)";

constexpr const char* kDpo = R"(def dpo_loss(output, chosen, rejected, reference, beta=0.1, label_smoothing=0):
    """Direct preference optimization (Rafailov et al. 2023): chosen answers should gain more on the reference."""
    labels = torch.cat([chosen, rejected])
    gains = log_probabilities(output, labels) - log_probabilities(reference, labels)
    chosen, rejected = gains.chunk(2)
    margin = beta * (chosen - rejected)
    return -(F.logsigmoid(margin) * (1 - label_smoothing) + F.logsigmoid(-margin) * label_smoothing).mean()
)";

std::string dpo(const LossReading& in) {
  if (in.loss.attributes.at("loss_type") != "sigmoid")
    in.file.refuse(in.loss.place, in.loss.path, "a DPOLoss is written with loss_type: sigmoid alone");
  in.file.define("log_probabilities", kLogProbabilities);
  in.file.define("dpo_loss", kDpo);
  return "dpo_loss(" + plain_inputs(in) + further(written_options(in.loss, {"loss_type", "disable_dropout"})) + ")";
}

const std::map<std::string, std::string>& functions_of_numbers() {
  static const std::map<std::string, std::string> table = {{"MSELoss", "mse_loss"},
                                                           {"L1Loss", "l1_loss"},
                                                           {"SmoothL1Loss", "smooth_l1_loss"},
                                                           {"HuberLoss", "huber_loss"},
                                                           {"BCELoss", "binary_cross_entropy"},
                                                           {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"},
                                                           {"KLDivLoss", "kl_div"},
                                                           {"PoissonNLLLoss", "poisson_nll_loss"},
                                                           {"GaussianNLLLoss", "gaussian_nll_loss"},
                                                           {"SoftMarginLoss", "soft_margin_loss"},
                                                           {"MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss"},
                                                           {"HingeEmbeddingLoss", "hinge_embedding_loss"},
                                                           {"TripletMarginLoss", "triplet_margin_loss"}};
  return table;
}

const std::map<std::string, std::string>& functions_of_classes() {
  static const std::map<std::string, std::string> table = {{"CrossEntropyLoss", "cross_entropy"},
                                                           {"NLLLoss", "nll_loss"},
                                                           {"CausalLMLoss", "cross_entropy"},
                                                           {"MultiMarginLoss", "multi_margin_loss"},
                                                           {"MultiLabelMarginLoss", "multilabel_margin_loss"},
                                                           {"CosineEmbeddingLoss", "cosine_embedding_loss"},
                                                           {"MarginRankingLoss", "margin_ranking_loss"}};
  return table;
}

using WriteLoss = std::string (*)(const LossReading&);
const std::map<std::string, WriteLoss>& other_losses() {
  static const std::map<std::string, WriteLoss> table = {
      {"DiceLoss", dice},
      {"GaussianKLLoss", gaussian_kl},
      {"DPOLoss", dpo},
      {"CTCLoss", ctc},
      {"QuantileLoss", quantiles},
      {"OutputLoss", [](const LossReading& in) { return in.variables[0] + ".mean()"; }}};
  return table;
}

std::string expression_of(const LossReading& in) {
  in.file.import("from torch.nn import functional as F");
  const std::string& type = in.loss.type;
  if (const auto function = functions_of_numbers().find(type); function != functions_of_numbers().end()) {
    return "F." + function->second + "(" + labels_as_numbers(in) + options_of(in) + ")";
  }
  if (const auto function = functions_of_classes().find(type); function != functions_of_classes().end()) {
    return of_classes(in, function->second, {"class_dim", "mean_over"});
  }
  if (const auto other = other_losses().find(type); other != other_losses().end()) return other->second(in);
  in.file.refuse(in.loss.place, in.loss.path,
                 "the loss " + type + " has no form in PyTorch here; use one that torch.nn has");
  return "";
}

/// How many targets of a batch count, if the loss is the mean over them.
std::string count_of(const LossComponent& loss, const Variables& variables, const Wiring& wiring) {
  const bool counts = loss.type == "CausalLMLoss" || loss.attributes.value("mean_over", std::string()) == "targets";
  if (!counts) return "";
  for (const auto& target : wiring.targets) {
    if (target.variable != variables.at(1)) continue;
    return "(" + in_batch(target.field) + " != " + std::to_string(loss.attributes.value("ignore_index", -100)) +
           ").sum()";
  }
  return "";
}

}  // namespace

LossForm write_loss(const Recipe& recipe, const Wiring& wiring, SourceFile& file) {
  LossForm form;
  std::string text;
  size_t sums = 0;
  for (size_t i = 0; i < recipe.loss.size(); ++i) {
    const LossComponent& loss = recipe.loss[i];
    std::string own = expression_of({loss, wiring.losses[i], wiring, file});
    if (loss.common.loss_weight != 1) {
      const Value* weight = loss.written.find("loss_weight");
      own = (weight ? literal(*weight) : nlohmann::json(loss.common.loss_weight).dump()) + " * " + own;
    }
    text += (i == 0 ? "" : " + ") + own;
    if (loss.attributes.value("reduction", std::string()) == "sum") ++sums;
    if (loss.type == "DPOLoss") {
      form.by_batch = true;
      form.without_dropout = form.without_dropout || loss.attributes.at("disable_dropout").get<bool>();
    }
    if (form.count.empty()) form.count = count_of(loss, wiring.losses[i], wiring);
  }
  if (sums > 0 && sums < recipe.loss.size()) {
    file.refuse(recipe.loss[0].place, recipe.loss[0].path,
                "sums and means among the losses are not written together; write reduction: mean");
  }
  form.is_sum = sums > 0;
  std::string parameters;
  std::string arguments;
  for (const std::string& variable : wiring.of_losses) {
    parameters += (parameters.empty() ? "" : ", ") + variable;
    std::string argument = variable;
    for (const auto& target : wiring.targets) {
      if (target.variable == variable) argument = in_batch(target.field);
    }
    arguments += (arguments.empty() ? "" : ", ") + argument;
  }
  std::string body = "    return " + text + "\n";
  constexpr size_t kMaxWidth = 110;
  if (body.size() > kMaxWidth && recipe.loss.size() > 1) {
    body = "    return (\n";
    size_t i = 0;
    for (size_t begin = 0; begin < text.size(); ++i) {
      const size_t end = i + 1 < recipe.loss.size() ? text.find(") + ", begin) + 1 : text.size();
      body += "        " + std::string(i == 0 ? "" : "+ ") + text.substr(begin, end - begin) + "\n";
      begin = end == text.size() ? end : end + 3;
    }
    body += "    )\n";
  }
  file.define("loss_of", "def loss_of(" + parameters + "):\n" + body);
  form.call = "loss_of(" + arguments + ")";
  return form;
}

}  // namespace trainrun::python
