#include "runner/train/job_notes.h"

#include <algorithm>
#include <memory>

#include "registry/language/error.h"
#include "registry/models/language_model.h"
#include "runner/base/text.h"
#include "runner/generate/text_codec.h"
#include "runner/model/data_checks.h"
#include "runner/model/index_checks.h"
#include "runner/model/model.h"

namespace trainrun {
namespace {

std::string steps_text(int64_t steps) { return std::to_string(steps) + (steps == 1 ? " step" : " steps"); }

bool packs(const Value& dataset) {
  const Value* packing = dataset.find("packing");
  if (packing && packing->is_scalar() && packing->text() == "true") return true;
  for (const Value& item : dataset.items()) {
    if (packs(item)) return true;
  }
  for (const Value::Entry& entry : dataset.entries()) {
    if (packs(entry.value)) return true;
  }
  return false;
}

void note_packing(const Recipe& recipe, const Dataset& data, const JobLength& job, std::vector<std::string>& notes) {
  constexpr int64_t kHandful = 10;
  if (!job.total_steps) return;
  const int64_t total = *job.total_steps;
  const bool is_asked = recipe.training.max_steps == total;
  if (total >= kHandful || is_asked || !packs(recipe.dataset.train.written)) return;
  notes.push_back(recipe.dataset.train.path + ": packing leaves " + std::to_string(data.size()) +
                  " samples, and the job has " + steps_text(total) +
                  ", in which hardly anything can be learnt; write packing: false, a smaller batch_size or max_length, "
                  "or more epochs");
}

/// The recipe's parameter `name` of the layer with this path; null where there is none.
nlohmann::json attribute_of(const Graph& graph, const std::string& path, const char* name) {
  for (const Graph::Node& node : graph.nodes()) {
    if (node.path == path && node.attributes.contains(name)) return node.attributes.at(name);
  }
  return nullptr;
}

/// Of a model whose vocabulary is far larger than the tokenizer's, or smaller, so that its ids do not fit.
void note_vocabulary(const Recipe& recipe, const Graph& graph, const Dataset& data, std::vector<std::string>& notes) {
  constexpr int64_t kRoundedUp =
      128;  // as vocabularies are, to multiples of 64 or 128; or a quarter is for tokens to come
  const std::vector<IndexUse> uses = index_uses(recipe, graph, training_info(recipe));
  const auto use = std::ranges::find_if(
      uses, [](const IndexUse& one) { return !one.is_label && holds_tokens(one.field) && !one.width.empty(); });
  if (use == uses.end()) return;
  std::shared_ptr<const TextCodec> codec;
  try {
    codec = codec_of_data(recipe, data.learnt());
  } catch (const DataError&) {  // a plugin's data may call something else so
    return;
  }
  if (!codec) return;
  const int64_t tokens = codec->vocab_size();
  const int64_t room = use->range.below - tokens;
  if (room >= 0 && room <= std::max(kRoundedUp, tokens / 4)) return;
  const nlohmann::json pretrained = attribute_of(graph, use->path, "pretrained");
  const std::string cure = pretrained.is_string()
                               ? "the weights of " + pretrained.get<std::string>() +
                                     " are for its own tokenizer: write tokenizer: " + pretrained.get<std::string>()
                               : "write " + use->width + ": " + std::to_string(tokens);
  notes.push_back(Problem{
      use->place, use->path,
      "the vocabulary has " + grouped(use->range.below) + " tokens, but the data's tokenizer " + grouped(tokens) +
          (room > 0 ? ", so that the others never come, and the model is larger and slower for them; "
                    : ", and a text with one of the others ends the training; ") +
          cure}
                      .to_string());
}

}  // namespace

std::vector<std::string> job_notes(const Recipe& recipe, const Graph& graph, const Dataset& data,
                                   const DataLoader::Transforms& transforms, const JobLength& length) {
  std::vector<std::string> notes = scale_warnings(recipe, graph, data, transforms);
  for (const Problem& surplus : surplus_outputs(recipe, graph, training_info(recipe), data)) {
    notes.push_back(surplus.to_string());
  }
  for (std::string& note : target_warnings(recipe, training_info(recipe), data, transforms)) {
    notes.push_back(std::move(note));
  }
  for (const Problem& note : schedule_notes(recipe, length)) notes.push_back(note.to_string());
  note_packing(recipe, data, length, notes);
  note_vocabulary(recipe, graph, data, notes);
  return notes;
}

}  // namespace trainrun
