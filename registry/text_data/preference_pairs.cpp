#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "registry/kinds/dataset_facts.h"
#include "registry/text_data/answers.h"
#include "registry/text_data/files_in_turn.h"

// Prompts with two answers each, of which people prefer one: what DPO and its kin learn from, and reward models.

namespace trainrun {
namespace {

struct PreferencePairs : AnswerOptions {
  std::optional<std::string> margin;
  static void describe(Fields<PreferencePairs>& f) {
    describe_into(f,
                  "a .jsonl file, plain or .gz: an object with `prompt`, `chosen` and `rejected` in each line; or a "
                  ".parquet, .arrow or .feather file with these columns. All three are texts, or lists of messages, "
                  "which the chat template writes. Without `prompt`, the prompt is what both texts begin with");
    f.optional("margin", &PreferencePairs::margin)
        .doc(
            "the key or column of a number that says by how much the chosen answer is better, given as the field "
            "`margin`; null: none");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

std::unique_ptr<UnlabelledData> read_single_answers(const UnlabelledSource& source, const PreferencePairs& like);

/// The fields of two answers to each prompt.
class AnswerPairs : public AnsweredPrompts {
 public:
  DatasetInfo info() const override {
    look();
    DatasetInfo info;
    add_fields(info, "chosen_");
    add_fields(info, "rejected_");
    if (has_margin_) info.fields.push_back({"margin", {}, at::kFloat, std::nullopt});
    info.target = "chosen_labels";
    return info;
  }

 protected:
  AnswerPairs(const PreferencePairs& options, AnswerKeys keys)
      : AnsweredPrompts(options, std::move(keys)), has_margin_(options.margin.has_value()) {}
  bool has_margin() const { return has_margin_; }

 private:
  bool has_margin_;
};

class PairDataset : public AnswerPairs {
 public:
  explicit PairDataset(const PreferencePairs& options)
      : AnswerPairs(options, {{"chosen", "rejected"}, options.margin.value_or("")}), pairs_(options) {}

  Batch get(const at::Tensor& indices) const override {
    std::array<std::vector<Text>, 2> texts;
    std::vector<float> margins;
    int64_t longest = 0;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t row = indices.const_data_ptr<int64_t>()[i];
      for (size_t which : {0, 1}) {
        texts[which].push_back({row, row, which});
        longest = std::max(longest, length_of(texts[which].back()));
      }
      margins.push_back(number_of(row));
    }
    Batch batch;
    add_texts(batch, "chosen_", texts[0], longest);
    add_texts(batch, "rejected_", texts[1], longest);
    if (has_margin()) batch.set("margin", at::tensor(margins));
    return batch;
  }
  DatasetFacts facts() const override {
    DatasetFacts facts = AnsweredPrompts::facts();
    facts.unlabelled = [this](const UnlabelledSource& source) { return read_single_answers(source, pairs_); };
    return facts;
  }

 private:
  PreferencePairs pairs_;
};

/// Prompts with one answer each, `completion`, as a model of pairs reads them: it is both answers.
class SingleAnswers : public AnswerPairs {
 public:
  explicit SingleAnswers(const PreferencePairs& options) : AnswerPairs(options, {{"completion"}, ""}) {}

  Batch get(const at::Tensor& indices) const override {
    std::vector<Text> texts;
    int64_t longest = 0;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const int64_t row = indices.const_data_ptr<int64_t>()[i];
      texts.push_back({row, row, 0});
      longest = std::max(longest, length_of(texts.back()));
    }
    Batch batch;
    for (const char* prefix : {"chosen_", "rejected_"}) add_texts(batch, prefix, texts, longest);
    if (has_margin()) batch.set("margin", at::zeros({indices.numel()}));
    return batch;
  }
  ValueColumn lines(int64_t first) const {
    std::vector<int64_t> own;
    for (int64_t i = first; i < size(); ++i) own.push_back(line(i));
    return {"line", at::tensor(own, at::kLong)};
  }
};

std::unique_ptr<UnlabelledData> read_single_answers(const UnlabelledSource& source, const PreferencePairs& like) {
  std::vector<FileInTurn> files;
  for (const std::string& path : source.paths) {
    PreferencePairs options = like;
    options.path = path;
    options.cache = TokenCaching::kNone;  // they are read once
    const auto answers = std::make_shared<SingleAnswers>(options);
    const std::weak_ptr<SingleAnswers> open = answers;  // it is held by its file
    files.push_back({path, answers, [open](int64_t first) { return std::vector{open.lock()->lines(first)}; }});
  }
  return files_in_turn(source, std::move(files));
}

std::unique_ptr<Dataset> PreferencePairs::build(const DatasetInputs&) const {
  return std::make_unique<PairDataset>(*this);
}

/// Sources: Ethayarajh et al. 2024, "KTO"; trl's KTOTrainer for how prompts and answers are mismatched.
struct DesirableAnswers : AnswerOptions {
  static void describe(Fields<DesirableAnswers>& f) {
    describe_into(f,
                  "a .jsonl file, plain or .gz: an object with `prompt`, `completion` and `label` in each line, where "
                  "`label` is true for a desirable completion; or a .parquet, .arrow or .feather file with these "
                  "columns. The first two are texts, or lists of messages, which the chat template writes");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class DesirableDataset : public AnsweredPrompts {
 public:
  explicit DesirableDataset(const DesirableAnswers& options)
      : AnsweredPrompts(options, {{"completion"}, "label", /*is_flag=*/true}) {}

  DatasetInfo info() const override {
    look();
    DatasetInfo info;
    add_fields(info, "");
    add_fields(info, "kl_");
    info.fields.push_back({"label", {}, at::kLong, 2});
    info.target = "labels";
    return info;
  }
  /// Each prompt is mismatched with the completion of the one before it in the batch, the first with the last one's.
  Batch get(const at::Tensor& indices) const override {
    std::vector<Text> own;
    std::vector<Text> mismatched;
    std::vector<int64_t> labels;
    int64_t longest = 0;
    const int64_t n = indices.numel();
    const auto* rows = indices.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      own.push_back({rows[i], rows[i], 0});
      mismatched.push_back({rows[i], rows[(i + n - 1) % n], 0});
      labels.push_back(number_of(rows[i]) > 0 ? 1 : 0);
      longest = std::max({longest, length_of(own.back()), length_of(mismatched.back())});
    }
    Batch batch;
    add_texts(batch, "", own, longest);
    add_texts(batch, "kl_", mismatched, longest);
    batch.set("label", at::tensor(labels, at::kLong));
    return batch;
  }
};

std::unique_ptr<Dataset> DesirableAnswers::build(const DatasetInputs&) const {
  return std::make_unique<DesirableDataset>(*this);
}

}  // namespace

void add_preference_pairs(DatasetRegistry& datasets) {
  datasets.add<PreferencePairs>("PreferencePairs",
                                "a prompt and two answers, `chosen` and `rejected`, in each line of a file, for "
                                "DPOLoss, ORPOLoss, SimPOLoss and BradleyTerryLoss; labels are already shifted");
  datasets.add<DesirableAnswers>("DesirableAnswers",
                                 "a prompt, a completion and whether it is desirable, in each line of a file, for "
                                 "KTOLoss; labels are already shifted");
}

}  // namespace trainrun
