// What a checkpoint keeps of the data: what they were, and what was learnt of them.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "registry/kinds/dataset_facts.h"
#include "runner/data/data_contract.h"
#include "runner/data/data_fingerprint.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kAllowChangedData =
    "; put the data back as they were, or write checkpoint.allow_changed=[data] to go on with them as they are";

bool may_change(const Recipe& recipe) {
  const auto& names = recipe.checkpoint.allow_changed;
  return std::find(names.begin(), names.end(), "data") != names.end();
}

/// By key: `dataset.train`, `dataset.eval`, or `dataset.eval.clean` of several.
class DataPart : public Stateful {
 public:
  explicit DataPart(Job& job) : Stateful(kDataPart), job_(job) {}

  json values() override { return job_.is_main() ? fingerprint() : json(json::value_t::discarded); }

  void load(const Snapshot& saved) override {
    if (saved.values.is_null()) return;  // there were checkpoints without
    for (const auto& [key, own] : fingerprint().items()) {
      if (!saved.values.contains(key)) continue;
      const DataDifference difference = compare_fingerprints(saved.values.at(key), own);
      if (!difference.doubt.empty()) spdlog::warn("dataset.{}: {}", key, difference.doubt);
      if (difference.change.empty()) continue;
      const std::string change = "dataset." + key + " has changed since the checkpoint was made: " + difference.change;
      if (!may_change(job_.recipe)) throw DataError(change + kAllowChangedData);
      spdlog::warn("{}; checkpoint.allow_changed says to go on", change);
    }
  }

 private:
  /// As data_fingerprint.h has it; read once.
  const json& fingerprint() {
    if (fingerprint_.is_null()) {
      fingerprint_["train"] = fingerprint_of(*job_.train_data, job_.recipe.dataset.train);
      for (size_t i = 0; i < job_.eval_splits.size(); ++i) {
        const EvalSets::One& set = job_.recipe.dataset.eval->sets[i];
        fingerprint_["eval" + (set.name.empty() ? "" : "." + set.name)] =
            fingerprint_of(*job_.eval_splits[i].data, set.data);
      }
    }
    return fingerprint_;
  }

  Job& job_;
  json fingerprint_;
};

/// What the model knows of its training data: the DataContract.
class LearntPart : public Stateful {
 public:
  explicit LearntPart(Job& job) : Stateful("learnt"), job_(job) {}

  json values() override {
    json learnt = DataContract::of(*job_.train_data, job_.transforms.get()).to_json();
    if (!job_.kept_tokenizers.is_null()) learnt["tokenizers"] = job_.kept_tokenizers;
    return learnt;
  }

  void load(const Snapshot& saved) override {
    const json learnt = saved.values.is_null() ? json::object() : saved.values;
    if (learnt.contains("inferred") || !learnt.value("dataset", json()).is_null()) {  // once, names were not saved
      take_back_dataset(learnt.value("dataset", json()));
    }
    job_.transforms->set_learnt(learnt.value("transforms", json()));
  }

 private:
  std::string change_of(const json& learnt) const {
    const json now = job_.train_data->learnt();
    const auto classes_in = [](const json& state) {
      return state.is_object() && state.contains("classes") && state["classes"].is_array()
                 ? join(state["classes"].get<std::vector<std::string>>())
                 : std::string();
    };
    if (classes_in(learnt).empty() || classes_in(now).empty() || classes_in(learnt) == classes_in(now)) {
      return "the categories, or the replacements for missing values, differ";
    }
    return "its classes were " + classes_in(learnt) + " and are " + classes_in(now);
  }
  void take_back_dataset(const json& learnt) {
    if (learnt == job_.train_data->learnt()) return;
    const std::string message = "dataset.train has changed since the checkpoint was made: " + change_of(learnt);
    if (!may_change(job_.recipe)) throw DataError(message + kAllowChangedData);
    spdlog::warn("{}; those of the checkpoint are kept, as checkpoint.allow_changed says", message);
    job_.train_data->set_learnt(learnt);
    for (const EvalSplit& split : job_.eval_splits) split.data->set_learnt(learnt);
  }

  Job& job_;
};

}  // namespace

void add_data_parts(Job& job, Parts& parts) {
  parts.push_back(std::make_unique<DataPart>(job));
  parts.push_back(std::make_unique<LearntPart>(job));
}

}  // namespace trainrun
