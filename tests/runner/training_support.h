#pragma once

#include <c10/core/GradMode.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/catalog.h"
#include "registry/graph/shape_mode.h"
#include "runner/base/signals.h"
#include "runner/loggers/loggers.h"
#include "runner/train/train_loop.h"
#include "tests/doctest.h"
#include "tests/faults/fsync.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun::test {

/// What a test sees of a run, and does in its midst: `Probe`, a layer that gives what it gets, and `Watcher`, a logger.
struct Script {
  std::function<at::Tensor(const at::Tensor& input, int64_t batch)> in_training;    // batches counted from 1
  std::function<at::Tensor(const at::Tensor& input, int64_t batch)> in_evaluation;  // of all evaluations
  std::function<void(const std::string& path)> at_checkpoint;
  std::function<void(int64_t step)> at_evaluation_line;
  int64_t training_batches = 0;
  int64_t evaluation_batches = 0;
  std::vector<StepRecord> lines;
  std::vector<EvaluationRecord> evaluations;
  std::vector<int64_t> checkpoints;  // their steps
  std::string reason;                // of the end
};

inline Script* script = nullptr;

struct Probe {
  static void describe(Fields<Probe>&) {}
  Layer build(const LayerInputs&) const {
    return layer_of_function([](const at::Tensor& input) {
      if (!script || ShapeMode::active()) return input;
      const bool trains = c10::GradMode::is_enabled();
      const int64_t batch = trains ? ++script->training_batches : ++script->evaluation_batches;
      const auto& act = trains ? script->in_training : script->in_evaluation;
      return act ? act(input, batch) : input;
    });
  }
};

class WatchingLogger : public Logger {
 public:
  bool is_told_at_once() const override { return true; }  // a test acts at an exact step
  void on_step(const StepRecord& record) override { script->lines.push_back(record); }
  void on_evaluation(const EvaluationRecord& record) override {
    script->evaluations.push_back(record);
    if (script->at_evaluation_line) script->at_evaluation_line(record.step);
  }
  void on_checkpoint(const CheckpointRecord& record) override {
    script->checkpoints.push_back(record.step);
    if (script->at_checkpoint) script->at_checkpoint(record.path);
  }
  void on_end(const EndRecord& record) override { script->reason = record.reason; }
};

struct Watcher {
  static void describe(Fields<Watcher>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs&) const { return std::make_unique<WatchingLogger>(); }
};

/// The built-in components, `Probe`, `Watcher`, and what `add` adds.
inline Catalog catalog_with(const std::function<void(Catalog&)>& add = {}) {
  Catalog catalog = builtins();
  add_loggers(catalog.loggers);
  catalog.layers.add<Probe>("Probe", "gives what it gets");
  catalog.loggers.add<Watcher>("Watcher", "keeps what it is told");
  if (add) add(catalog);
  return catalog;
}

/// Trains in `folder` by tests/recipes/digits_small.yaml: 45 batches of 32 an epoch. Returns what `train` does.
inline int train_in(const std::string& folder, Script& own, const std::vector<std::string>& overrides, Catalog& catalog,
                    const std::function<void(Job&)>& prepare = {}) {
  std::vector<std::string> all = {
      "output_dir=" + folder, "logging={every_steps: 1, report_to: [jsonl, Watcher]}",
      "model.layers=[Probe, Flatten, BatchNorm1d, {type: Dropout, p: 0.2}, {type: Linear, out_features: 10}]"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const LoadedRecipe loaded = load_recipe("tests/recipes/digits_small.yaml", all, catalog);
  script = &own;
  struct Ending {
    ~Ending() {
      script = nullptr;
      start_log("", true, false);  // lets go of the file
    }
  } const ending;
  const StopSignals signals;
  Job job(loaded, {.quiet = true});
  if (prepare) prepare(job);
  return quickly([&] { return train(job); });
}

inline int train_in(const std::string& folder, Script& own, const std::vector<std::string>& overrides) {
  static Catalog catalog = catalog_with();  // no plugin adds to it
  return train_in(folder, own, overrides, catalog);
}

inline nlohmann::json state_of(const std::string& checkpoint) { return CheckpointStore::verify(checkpoint); }

/// What a run leaves, without what measures time: metrics.jsonl's lines, the links, the newest checkpoint's files.
inline std::map<std::string, std::string> outcome_of(const std::string& folder) {
  std::map<std::string, std::string> outcome;
  for (const char* link : {"latest", "best"}) {
    std::error_code missing;
    outcome[link] = std::filesystem::read_symlink(folder + "/checkpoints/" + link, missing).string();
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    outcome[file] = content_of(folder + "/checkpoints/latest/" + file);
  }
  nlohmann::json state = state_of(folder + "/checkpoints/latest");
  for (const char* of_time : {"seconds", "seconds_of"}) state.erase(of_time);
  outcome["state"] = state.dump();
  std::ifstream lines(folder + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json figures = nlohmann::json::parse(line);
    figures.erase("time");
    figures.erase("train/samples_per_second");
    outcome["metrics"] += figures.dump() + "\n";
  }
  return outcome;
}

inline void check_same_outcome(const std::string& actual, const std::string& expected) {
  const auto a = outcome_of(actual);
  const auto b = outcome_of(expected);
  for (const auto& item : b) {
    CAPTURE(item.first);
    CHECK((a.at(item.first) == item.second));  // in parentheses: not all of it is text
  }
}

}  // namespace trainrun::test
