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

/// An integer among a component's parameters; 0 where there is none.
int64_t whole_number_in(const nlohmann::json& attributes, const char* name) {
  const auto found = attributes.find(name);
  return found != attributes.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::string steps_text(int64_t steps) { return std::to_string(steps) + (steps == 1 ? " step" : " steps"); }

/// Of a scheduler: how many steps, or epochs, its rate rises, whatever the length of the job; 0: it does not.
int64_t rise_of(const Component<SchedulerKind>& scheduler) {
  const nlohmann::json& attributes = scheduler.attributes;
  if (scheduler.type != "LinearLR") return whole_number_in(attributes, "warmup_steps");
  const bool rises = attributes.at("start_factor").get<double>() < attributes.at("end_factor").get<double>();
  return rises ? whole_number_in(attributes, "total_iters") : 0;
}

void note_schedule(const Recipe& recipe, const JobLength& job, std::vector<std::string>& notes) {
  if (!recipe.scheduler) return;
  const Component<SchedulerKind>& scheduler = *recipe.scheduler;
  const bool by_epochs = scheduler.common.interval == Interval::kEpoch;
  const int64_t total = job.total_steps;
  const int64_t in_epoch = job.steps_per_epoch;
  if (by_epochs && total < in_epoch) {
    notes.push_back("scheduler: " + scheduler.type + " counts epochs, but the job ends after " + steps_text(total) +
                    " of the first epoch's " + std::to_string(in_epoch) +
                    ", so that the rate never changes; write interval: step");
    return;
  }
  const int64_t rise = rise_of(scheduler);
  const int64_t length = by_epochs ? (total + in_epoch - 1) / in_epoch : total;
  if (rise == 0 || rise < length) return;
  const std::string unit = by_epochs ? " epochs" : " steps";
  notes.push_back("scheduler: the rate of " + scheduler.type + " rises for " + std::to_string(rise) + unit +
                  ", but the job has " + std::to_string(length) + ", so that it never reaches optimizer.lr");
}

void note_averages(const Recipe& recipe, const JobLength& job, std::vector<std::string>& notes) {
  for (const Component<CallbackKind>& callback : recipe.callbacks) {
    const int64_t start = whole_number_in(callback.attributes, "start_step");
    if (start <= job.total_steps) continue;
    notes.push_back(callback.path + ": " + callback.type + " begins at step " + std::to_string(start) +
                    ", but the job has " + steps_text(job.total_steps) + ", so that it never does anything");
  }
}

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
  const int64_t total = job.total_steps;
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
  note_schedule(recipe, length, notes);
  note_averages(recipe, length, notes);
  note_packing(recipe, data, length, notes);
  note_vocabulary(recipe, graph, data, notes);
  return notes;
}

}  // namespace trainrun
