#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "registry/catalog.h"
#include "registry/datasets/arrow_library.h"
#include "registry/datasets/data_details.h"
#include "registry/datasets/text_corpus.h"
#include "registry/error.h"
#include "registry/text/tokenizer.h"

// Prompts with two answers each, of which people prefer one: what DPO learns from.

namespace trainrun {
namespace {

constexpr int64_t kNoTarget = -100;

struct PreferencePairs {
  std::string path;
  std::string tokenizer;
  int64_t max_length = 1024;
  static void describe(Fields<PreferencePairs>& f) {
    using P = PreferencePairs;
    f.required("path", &P::path)
        .doc(
            "a .jsonl file, plain or .gz: an object with the texts `prompt`, `chosen` and `rejected` in each line; or "
            "a "
            ".parquet, .arrow or .feather file with these columns");
    f.required("tokenizer", &P::tokenizer)
        .doc("a folder in Hugging Face's layout, or one of a tokenizer's files; it adds no special tokens");
    f.optional("max_length", &P::max_length)
        .at_least(2)
        .unit("tokens")
        .doc("a prompt with its answer is cut to this, at its end");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// A prompt with one of its answers; the end-of-text token, if the tokenizer has one, is the answer's last.
struct Answered {
  std::vector<int64_t> ids;
  size_t prompt = 0;  // tokens of the prompt
};

struct PairTexts {
  std::string prompt;
  std::string chosen;
  std::string rejected;
};

struct Pair {
  int64_t line = 0;
  Answered chosen;
  Answered rejected;
};

class PairDataset : public Dataset, public DetailedDataset {
 public:
  explicit PairDataset(PreferencePairs options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    for (const char* answer : {"chosen", "rejected"}) {
      for (const char* field : {"_input_ids", "_attention_mask", "_labels"}) {
        info.fields.push_back({std::string(answer) + field, {options_.max_length}, at::kLong, std::nullopt});
      }
    }
    info.target = "chosen_labels";
    return info;
  }
  void open() override {
    tokenizer_ = open_tokenizer(options_.tokenizer);
    end_ = tokenizer_->special_id("eos");
    if (is_arrow_file(options_.path)) {
      for_each_arrow_row(options_.path, {"prompt", "chosen", "rejected"}, [&](std::vector<Cell>& row, int64_t number) {
        const auto text = [&](size_t i, const char* key) { return text_in(row[i], place_of_line(number) + ":" + key); };
        pairs_.push_back(pair_of({text(0, "prompt"), text(1, "chosen"), text(2, "rejected")}, number));
      });
    } else {
      for_each_line(options_.path, [&](std::string_view line, int64_t number) {
        pairs_.push_back(pair_of(texts_of(line, number), number));
      });
    }
    if (pairs_.empty()) throw DataError(options_.path + ": has no rows");
  }
  int64_t size() const override { return static_cast<int64_t>(pairs_.size()); }
  Batch get(const at::Tensor& indices) const override {
    std::vector<const Pair*> pairs;
    size_t longest = 0;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      pairs.push_back(&pairs_.at(static_cast<size_t>(indices.const_data_ptr<int64_t>()[i])));
      longest = std::max({longest, pairs.back()->chosen.ids.size(), pairs.back()->rejected.ids.size()});
    }
    Batch batch;
    add_answers(batch, "chosen", pairs, &Pair::chosen, static_cast<int64_t>(longest));
    add_answers(batch, "rejected", pairs, &Pair::rejected, static_cast<int64_t>(longest));
    return batch;
  }
  std::optional<int64_t> padding(const std::string& field) const override {
    if (field.ends_with("_labels")) return kNoTarget;
    return field.ends_with("_input_ids") ? tokenizer_->pad_id().value_or(0) : 0;
  }
  std::string place(int64_t index, const std::string& field) const override {
    return place_of_line(pairs_.at(static_cast<size_t>(index)).line) + ":" + field;
  }

 private:
  std::string place_of_line(int64_t line) const { return options_.path + ":" + std::to_string(line); }

  PairTexts texts_of(std::string_view text, int64_t line) const {
    const nlohmann::json row = json_object(text, place_of_line(line));
    const auto words = [&](const char* key) {
      const auto found = row.find(key);
      if (found == row.end()) throw DataError(place_of_line(line) + ": has no key '" + key + "'");
      if (!found->is_string()) {
        throw DataError(place_of_line(line) + ":" + key + ": expected a text, found " + found->type_name());
      }
      return found->get<std::string>();
    };
    return {words("prompt"), words("chosen"), words("rejected")};
  }

  Pair pair_of(const PairTexts& texts, int64_t line) const {
    const std::vector<int64_t> prompt = tokenizer_->encode(texts.prompt, /*add_special_tokens=*/false).ids;
    if (prompt.empty())
      throw DataError(place_of_line(line) + ":prompt: is empty, but an answer needs a token before it");
    return {line, answered(prompt, texts.chosen, "chosen", line), answered(prompt, texts.rejected, "rejected", line)};
  }

  Answered answered(const std::vector<int64_t>& prompt, const std::string& answer, const char* key,
                    int64_t line) const {
    Answered made = {prompt, prompt.size()};
    const std::vector<int64_t> ids = tokenizer_->encode(answer, /*add_special_tokens=*/false).ids;
    made.ids.insert(made.ids.end(), ids.begin(), ids.end());
    if (end_) made.ids.push_back(*end_);
    const auto most = static_cast<size_t>(options_.max_length);
    if (made.ids.size() == made.prompt || made.prompt >= most) {
      throw DataError(place_of_line(line) + ":" + key + ": " +
                      (made.prompt >= most ? "its prompt alone has " + std::to_string(made.prompt) +
                                                 " tokens, and max_length is " + std::to_string(most)
                                           : "is empty, and the tokenizer has no token for the end of a text"));
    }
    made.ids.resize(std::min(made.ids.size(), most));
    return made;
  }

  void add_answers(Batch& batch, const std::string& name, const std::vector<const Pair*>& pairs,
                   Answered Pair::* member, int64_t length) const {
    const auto n = static_cast<int64_t>(pairs.size());
    const at::Tensor ids = at::full({n, length}, tokenizer_->pad_id().value_or(0), at::kLong);
    const at::Tensor mask = at::zeros({n, length}, at::kLong);
    const at::Tensor labels = at::full({n, length}, kNoTarget, at::kLong);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Answered& own = pairs[i]->*member;
      const auto row = static_cast<int64_t>(i) * length;
      std::ranges::copy(own.ids, ids.mutable_data_ptr<int64_t>() + row);
      std::fill_n(mask.mutable_data_ptr<int64_t>() + row, own.ids.size(), 1);
      const auto prompt = static_cast<int64_t>(own.prompt);  // its last token is followed by the answer's first
      std::copy(own.ids.begin() + prompt, own.ids.end(), labels.mutable_data_ptr<int64_t>() + row + prompt - 1);
    }
    batch.set(name + "_input_ids", ids);
    batch.set(name + "_attention_mask", mask);
    batch.set(name + "_labels", labels);
  }

  PreferencePairs options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<int64_t> end_;  // the token that ends a text
  std::vector<Pair> pairs_;
};

std::unique_ptr<Dataset> PreferencePairs::build(const DatasetInputs&) const {
  return std::make_unique<PairDataset>(*this);
}

}  // namespace

void add_preference_pairs(DatasetRegistry& datasets) {
  datasets.add<PreferencePairs>("PreferencePairs",
                                "a prompt and two answers, `chosen` and `rejected`, in each line of a file, for "
                                "DPOLoss; labels are shifted already");
}

}  // namespace trainrun
