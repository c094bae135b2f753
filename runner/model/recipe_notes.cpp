#include "runner/model/recipe_notes.h"

#include <functional>
#include <set>

#include "registry/graph/flatten.h"
#include "runner/data/encoding_notes.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

constexpr double kTooSmallRate = 1e-8;  // less than float32 weights of usual size can tell
constexpr double kTooLargeRate = 10;

/// Steps of these have the size of the learning rate itself, whatever the gradients.
const std::set<std::string>& adaptive_optimizers() {
  static const std::set<std::string> names = {"Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Lion", "RMSprop"};
  return names;
}

/// Schedulers that set the rate themselves, whatever the optimizer's is.
const std::set<std::string>& rate_setters() {
  static const std::set<std::string> names = {"OneCycleLR", "CyclicLR"};
  return names;
}

void visit(const Value& value, const std::function<void(const Value&)>& visitor) {
  visitor(value);
  for (const Value& item : value.items()) visit(item, visitor);
  for (const Value::Entry& entry : value.entries()) visit(entry.value, visitor);
}

void note_rate(const Recipe& recipe, std::vector<Problem>& notes) {
  const Value* written = recipe.optimizer.written.find("lr");
  const auto rate = written && written->is_scalar() ? parse_number(written->text()) : std::nullopt;
  if (!rate || (recipe.scheduler && rate_setters().contains(recipe.scheduler->type))) return;
  const auto note = [&](const std::string& text) { notes.push_back({written->place(), "optimizer.lr", text}); };
  const std::string number = detail::number_text(*rate);
  const bool adaptive = adaptive_optimizers().contains(recipe.optimizer.type);
  if (*rate == 0) {
    note("is 0: the weights will not change");
  } else if (recipe.scheduler && recipe.scheduler->type == "Piecewise") {
    return;  // its factors may be the rates themselves, of an lr of 1
  } else if (*rate < kTooSmallRate) {
    note("is " + number + ", which is too small to change weights in float32");
  } else if (*rate >= (adaptive ? 1 : kTooLargeRate)) {
    note("is " + number + ", which is very large for " + recipe.optimizer.type + "; the loss will probably not fall");
  }
}

void note_metrics(const Recipe& recipe, const Value& resolved, std::vector<Problem>& notes) {
  const bool has_eval = recipe.dataset.eval.has_value() || recipe.dataset.fold.has_value();
  if (has_eval) return;
  if (const Value* metrics = resolved.find("metrics"); metrics && !recipe.metrics.empty()) {
    notes.push_back({metrics->place(), "metrics", "are never computed: there is no dataset.eval to evaluate on"});
  }
  const Value* dataset = resolved.find("dataset");
  const Value* transforms = dataset ? dataset->find("eval_transforms") : nullptr;
  if (transforms && !recipe.dataset.eval_transforms.empty()) {
    notes.push_back({transforms->place(), "dataset.eval_transforms", "are never used: there is no dataset.eval"});
  }
}

/// Losses that compare with the tokens which the model reads, where the data hold those that come next.
void note_copied_tokens(const Recipe& recipe, std::vector<Problem>& notes) {
  for (const Component<LossKind>& loss : recipe.loss) {
    const Names& inputs = loss.common.inputs;
    const LossFacts facts = loss.facts({});
    const bool reads_tokens = inputs.size() == 2 && inputs[1] == "input_ids";
    const bool learns_tokens = facts.counted || facts.target == LossFacts::Target::kClasses;
    if (!reads_tokens || !learns_tokens || !training_info(recipe).find("labels")) continue;
    notes.push_back({loss.place, loss.path + ".inputs",
                     "compares with 'input_ids', the tokens that the model reads itself, so that it learns to copy "
                     "them; the tokens that come next are 'labels': write inputs: [" +
                         inputs[0] + ", labels]"});
  }
}

/// Layers that read sequences, [T, N, C] unless they say `batch_first`.
const std::set<std::string>& sequence_layers() {
  static const std::set<std::string> names = {"TransformerEncoder",
                                              "TransformerEncoderLayer",
                                              "TransformerDecoder",
                                              "TransformerDecoderLayer",
                                              "MultiheadAttention",
                                              "RNN",
                                              "GRU",
                                              "LSTM"};
  return names;
}

bool is_undecided(const Value& layer) {
  const Value* type = layer.is_map() ? layer.find("type") : nullptr;
  return type && type->is_scalar() && sequence_layers().contains(type->text()) && !layer.find("batch_first");
}

/// Notes the layers for which the batch, which comes first, would be the sequence.
void note_batch_first(const Recipe& recipe, const std::set<std::string>& undecided, std::vector<Problem>& notes) {
  const auto model = plan_model(recipe);
  for (const FlatLayer& layer : flatten(model->graph()).layers) {
    const Graph::Node& node = *layer.node;
    if (!node.is_written || !undecided.contains(node.place.to_string()) || node.input_shapes.empty()) continue;
    const std::vector<int64_t>& shape = node.input_shapes[0];
    const bool batch_is_first = shape.size() == 3 && shape[0] == kExampleBatch && shape[1] != kExampleBatch;
    if (!batch_is_first) continue;
    notes.push_back({node.place, node.path,
                     node.type + " reads its input as [T, N, C], since batch_first is false by default, but the "
                                 "batch comes first here; write batch_first: true"});
  }
}

/// A part of some data: of which, how they are drawn, and which one it is.
struct DrawnPart {
  nlohmann::json source;
  const Value* within = nullptr;  // of a Split: the data set that it divides
  nlohmann::json draw;            // null: all of it is taken
  nlohmann::json part;

  bool is_of_same_data(const DrawnPart& other) const {
    if (!within || !other.within) return !within && !other.within && source == other.source;
    return same_meaning(*within, *other.within);
  }
};

/// Of a table with `split`, or of what the data set Split holds; nothing of other data.
std::optional<DrawnPart> drawn_part(const Component<DatasetKind>& data) {
  const nlohmann::json& own = data.attributes;
  DrawnPart found;
  if (data.type == "Split") {
    found.within = data.written.find("dataset");
    if (!found.within) return std::nullopt;
    found.draw = own;
    found.draw.erase("dataset");
  } else {
    const bool has_parts = own.contains("split") && !own["split"].is_string();  // a text names a part that is published
    if (!has_parts || !own.contains("path")) return std::nullopt;
    found.source = {{"type", data.type}, {"path", own["path"]}};
    found.draw = own["split"];
  }
  if (!found.draw.is_object()) return found;
  found.part = found.draw.value("part", nlohmann::json());
  found.draw.erase("part");
  return found;
}

/// Evaluation data that are drawn from the training data's own source in another way than these: they share samples.
void note_other_draws(const Recipe& recipe, std::vector<Problem>& notes) {
  const auto train = drawn_part(recipe.dataset.train);
  if (!train || !recipe.dataset.eval) return;
  for (const auto& set : recipe.dataset.eval->sets) {
    const auto eval = drawn_part(set.data);
    if (!eval || !eval->is_of_same_data(*train) || (eval->draw.is_null() && train->draw.is_null())) continue;
    std::string fault;
    if (eval->draw.is_null() || train->draw.is_null()) {
      const bool evaluates_all = eval->draw.is_null();
      fault = std::string(evaluates_all ? "reads all the data of which dataset.train has a part"
                                        : "has a part of the data that dataset.train reads whole") +
              ", so that it is evaluated on what it was trained on; write the same split in both, with another part";
    } else if (eval->draw != train->draw) {
      std::vector<std::string> others;
      for (const auto& [key, value] : eval->draw.items()) {
        if (value != train->draw.value(key, nlohmann::json())) others.push_back(key);
      }
      fault = "draws its part otherwise than dataset.train, by another " + join(others) +
              ", so that they have samples in common; only `part` may differ";
    } else if (eval->part == train->part) {
      fault = "is the part of the data that dataset.train is; write another `part`";
    }
    if (!fault.empty()) notes.push_back({set.data.place, set.path(), std::move(fault)});
  }
}

}  // namespace

std::vector<Problem> recipe_notes(const LoadedRecipe& loaded) {
  std::vector<Problem> notes = loaded.surplus;
  note_metrics(loaded.recipe, loaded.resolved, notes);
  note_rate(loaded.recipe, notes);
  note_other_draws(loaded.recipe, notes);
  if (const Value* dataset = loaded.resolved.find("dataset")) add_encoding_notes(*dataset, "dataset", notes);
  if (loaded.is_planned) note_copied_tokens(loaded.recipe, notes);
  std::set<std::string> undecided;
  visit(loaded.resolved, [&](const Value& value) {
    if (is_undecided(value)) undecided.insert(value.place().to_string());
  });
  if (!undecided.empty() && loaded.is_planned) note_batch_first(loaded.recipe, undecided, notes);
  sort_problems(notes);
  return notes;
}

}  // namespace trainrun
