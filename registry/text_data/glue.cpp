// The tasks of the General Language Understanding Evaluation.
#include <filesystem>

#include "registry/kinds/dataset.h"
#include "registry/text_data/encoded_texts.h"

namespace trainrun {

enum class GlueTask { kCola, kSst2, kMrpc, kQqp, kStsb, kMnli, kQnli, kRte, kWnli };
template <>
struct Words<GlueTask> {
  static constexpr std::array kWords = {"CoLA", "SST-2", "MRPC", "QQP", "STS-B", "MNLI", "QNLI", "RTE", "WNLI"};
};

enum class GlueSplit { kTrain, kDev, kDevMatched, kDevMismatched };
template <>
struct Words<GlueSplit> {
  static constexpr std::array kWords = {"train", "dev", "dev_matched", "dev_mismatched"};
};

namespace {

/// How the files of a task are laid out.
struct GlueLayout {
  std::vector<std::string> text_columns;
  std::string label;
  std::vector<std::string>
      classes;  // as the files write them, in the order of their numbers; empty: the target is a number
  std::vector<std::string> names;  // of the columns, where no first line names them
};

GlueLayout layout_of(GlueTask task) {
  const std::vector<std::string> numbered = {"0", "1"};
  const std::vector<std::string> entailment = {"entailment", "not_entailment"};
  switch (task) {
    case GlueTask::kCola:
      return {{"sentence"}, "label", numbered, {"source", "label", "original_label", "sentence"}};
    case GlueTask::kSst2:
      return {{"sentence"}, "label", numbered, {}};
    case GlueTask::kMrpc:
      return {{"#1 String", "#2 String"}, "Quality", numbered, {}};
    case GlueTask::kQqp:
      return {{"question1", "question2"}, "is_duplicate", numbered, {}};
    case GlueTask::kStsb:
      return {{"sentence1", "sentence2"}, "score", {}, {}};
    case GlueTask::kMnli:
      return {{"sentence1", "sentence2"}, "gold_label", {"entailment", "neutral", "contradiction"}, {}};
    case GlueTask::kQnli:
      return {{"question", "sentence"}, "label", entailment, {}};
    case GlueTask::kRte:
      return {{"sentence1", "sentence2"}, "label", entailment, {}};
    case GlueTask::kWnli:
      return {{"sentence1", "sentence2"}, "label", numbered, {}};
  }
  return {};
}

/// Source: Wang et al. 2018, "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding".
struct Glue : EncodingOptions {
  std::string root;
  GlueTask task = GlueTask::kSst2;
  GlueSplit split = GlueSplit::kTrain;

  static void describe(Fields<Glue>& f) {
    f.required("root", &Glue::root)
        .doc(
            "the folder in which the archives were unpacked: it holds a folder of .tsv files for each task, which has "
            "the task's name");
    f.required("task", &Glue::task)
        .doc(
            "CoLA, SST-2, MRPC, QQP, QNLI, RTE and WNLI have two classes; MNLI has three (entailment, neutral, "
            "contradiction); STS-B has a score from 0 to 5, which a model with one output learns by MSELoss");
    f.required("split", &Glue::split)
        .doc(
            "train or dev; of MNLI dev_matched or dev_mismatched in place of dev. The labels of test.tsv are not "
            "published: use `trainrun predict RUN test.tsv`");
    EncodingOptions::describe_into(f);
    f.rule({.when = {the("task").is("MNLI")},
            .all = {the("split").is_not("dev")},
            .at = "split",
            .message = "MNLI has no dev.tsv; write dev_matched or dev_mismatched"});
    f.rule({.when = {the("task").is_not("MNLI")},
            .all = {the("split").is_not("dev_matched"), the("split").is_not("dev_mismatched")},
            .at = "split",
            .message = "only MNLI has {split}.tsv; write dev"});
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    GlueLayout layout = layout_of(task);
    TextTableOptions source;
    source.is_chosen = false;
    source.path = (std::filesystem::path(root) / word_of(task) / (word_of(split) + ".tsv")).string();
    source.text_columns = std::move(layout.text_columns);
    source.label = std::move(layout.label);
    source.names = std::move(layout.names);
    source.leaves_out_short_rows = true;
    if (layout.classes.empty()) {
      return std::make_unique<EncodedTexts>(std::move(source), *this, std::nullopt, std::nullopt,
                                            EncodedTexts::Target::kScore);
    }
    return std::make_unique<EncodedTexts>(std::move(source), *this, std::move(layout.classes));
  }
};

}  // namespace

void add_glue(DatasetRegistry& datasets) {
  datasets.add<Glue>("GLUE",
                     "a task of the General Language Understanding Evaluation, read from its own files, in which "
                     "quotation marks are ordinary text; batches are padded to their longest text");
}

}  // namespace trainrun
