#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <span>

#include "registry/data/sample_lengths.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/texts/text_corpus.h"
#include "registry/data/texts/token_cache.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"

// Prompts with two answers each, of which people prefer one: what DPO learns from.

namespace trainrun {

/// Where the tokens of a prompt and its answer come from.
enum class PairTokens { kTogether, kApart };
template <>
struct Words<PairTokens> {
  static constexpr std::array kWords = {"together", "apart"};
};

namespace {

constexpr int64_t kNoTarget = -100;

struct PreferencePairs {
  std::string path;
  std::string tokenizer;
  int64_t max_length = 1024;
  PairTokens tokenize = PairTokens::kTogether;
  TokenCaching cache = TokenCaching::kNone;
  static void describe(Fields<PreferencePairs>& f) {
    using P = PreferencePairs;
    f.required("path", &P::path)
        .doc(
            "a .jsonl file, plain or .gz: an object with the texts `prompt`, `chosen` and `rejected` in each line; or "
            "a .parquet, .arrow or .feather file with these columns");
    f.required("tokenizer", &P::tokenizer)
        .doc("a folder in Hugging Face's layout, or one of a tokenizer's files, or the name of a model on its hub");
    f.optional("max_length", &P::max_length)
        .at_least(2)
        .unit("tokens")
        .doc("a prompt with its answer is cut to this, at its end");
    f.optional("tokenize", &P::tokenize)
        .doc(
            "together: a prompt with its answer is one text, with the special tokens that the tokenizer puts around "
            "it, "
            "and the answer begins where the tokens of the prompt alone and of both texts part, as in trl 1.16; apart: "
            "each is a text of its own, without special tokens, as in earlier releases of trl. In both, the answer "
            "ends with the "
            "tokenizer's end of text");
    f.optional("cache", &P::cache).doc(kTokenCachingHelp);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

constexpr size_t kPairArrays = 5;

/// The lines' prompts with their answers: of each line the chosen one, then the rejected one. The end-of-text token, if
/// the tokenizer has one, is the answer's last, but for what the tokenizer puts after a text.
struct EncodedPairs {
  std::vector<int32_t> ids;           // of all, one after the other
  std::vector<int64_t> begins = {0};  // of each, and the end
  std::vector<int64_t> prompts;       // how many tokens of each are the prompt's
  std::vector<int64_t> lines;         // of each pair
  std::vector<int64_t> numbers = {
      0};  // of pairs whose prompt lost its end, which became one token with an answer's begin

  ByteArrays arrays(std::shared_ptr<const void> owner) const {
    return {std::move(owner), {bytes_of(ids), bytes_of(begins), bytes_of(prompts), bytes_of(lines), bytes_of(numbers)}};
  }
};

class PairMaker {
 public:
  PairMaker(const PreferencePairs& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), end_(tokenizer.special_id("eos")) {}

  ByteArrays make() {
    if (is_arrow_file(options_.path)) {
      for_each_arrow_row(options_.path, {kKeys.begin(), kKeys.end()},
                         [&](std::vector<Cell>& row, int64_t number) { add(texts_of(row, number), number); });
    } else {
      for_each_line(options_.path, std::nullopt,
                    [&](std::string_view line, int64_t number) { add(texts_of(line, number), number); });
    }
    encode();
    return made_->arrays(made_);
  }

 private:
  static constexpr std::array kKeys = {"prompt", "chosen", "rejected"};
  using Texts = std::array<std::string, kKeys.size()>;
  using Ids = std::vector<int64_t>;
  struct Row {
    int64_t line;
    Texts texts;
  };

  std::string place(int64_t line) const { return options_.path + ":" + std::to_string(line); }

  Texts texts_of(std::string_view text, int64_t line) const {
    const nlohmann::json row = json_object(text, place(line));
    Texts texts;
    for (size_t i = 0; i < kKeys.size(); ++i) {
      const auto found = row.find(kKeys[i]);
      if (found == row.end()) throw DataError(place(line) + ": has no key '" + kKeys[i] + "'");
      if (!found->is_string()) {
        throw DataError(place(line) + ":" + kKeys[i] + ": expected a string, found " + found->type_name());
      }
      texts[i] = found->get<std::string>();
    }
    return texts;
  }
  Texts texts_of(std::vector<Cell>& row, int64_t number) const {
    Texts texts;
    for (size_t i = 0; i < kKeys.size(); ++i) texts[i] = text_in(row[i], place(number) + ":" + kKeys[i]);
    return texts;
  }

  void add(Texts texts, int64_t line) {
    constexpr size_t kAtOnce = 512;
    waiting_.push_back({line, std::move(texts)});
    if (waiting_.size() == kAtOnce) encode();
  }

  void encode() {
    const bool together = options_.tokenize == PairTokens::kTogether;
    std::vector<std::string> wholes;
    std::vector<TextPair> texts;
    wholes.reserve(waiting_.size() * 2);  // views of them are kept
    for (const Row& row : waiting_) {
      texts.push_back({row.texts[0], std::nullopt});
      for (size_t key = 1; key < kKeys.size(); ++key) {
        if (together) wholes.push_back(ended(row.texts[0] + row.texts[key]));
        texts.push_back({together ? wholes.back() : row.texts[key], std::nullopt});
      }
    }
    const auto encoded = encode_batch(tokenizer_, texts, /*truncation=*/std::nullopt, /*add_special_tokens=*/together);
    for (size_t i = 0; i < waiting_.size(); ++i) {
      Ids prompt = encoded[i * kKeys.size()].ids;
      Ids chosen = encoded[i * kKeys.size() + 1].ids;
      Ids rejected = encoded[i * kKeys.size() + 2].ids;
      const int64_t line = waiting_[i].line;
      if (together) cut_prompt(prompt, chosen, rejected, line);
      if (prompt.empty()) throw DataError(place(line) + ":prompt: is empty, but an answer needs a token before it");
      keep(prompt, std::move(chosen), 1, line);
      keep(prompt, std::move(rejected), 2, line);
      made_->lines.push_back(line);
    }
    waiting_.clear();
  }

  /// With the token that ends a text, where it is not written already.
  std::string ended(const std::string& text) const {
    const std::string end = end_ ? tokenizer_.token_of(*end_).value_or("") : "";
    return text.ends_with(end) ? text : text + end;
  }

  /// Leaves of the prompt what begins both wholes, and of these what comes after that.
  void cut_prompt(Ids& prompt, Ids& chosen, Ids& rejected, int64_t line) {
    const auto common = [&](const Ids& whole) {
      return std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).first - prompt.begin();
    };
    const auto length = std::min(common(chosen), common(rejected));
    if (length == 0 && !prompt.empty()) {
      throw DataError(
          place(line) +
          ":prompt: none of its tokens is left where it is one text with its answers; write tokenize: apart");
    }
    made_->numbers[0] += prompt.size() > static_cast<size_t>(length) ? 1 : 0;
    prompt.resize(static_cast<size_t>(length));
    chosen.erase(chosen.begin(), chosen.begin() + length);
    rejected.erase(rejected.begin(), rejected.begin() + length);
  }

  void keep(const Ids& prompt, Ids answer, size_t key, int64_t line) {
    if (end_ && options_.tokenize == PairTokens::kApart) answer.push_back(*end_);
    const auto most = static_cast<size_t>(options_.max_length);
    if (answer.empty() || prompt.size() >= most) {
      throw DataError(place(line) + ":" + kKeys[key] + ": " +
                      (prompt.size() >= most ? "its prompt alone has " + std::to_string(prompt.size()) +
                                                   " tokens, and max_length is " + std::to_string(most)
                                             : "is empty, and the tokenizer has no token for the end of a text"));
    }
    answer.resize(std::min(answer.size(), most - prompt.size()));
    made_->ids.insert(made_->ids.end(), prompt.begin(), prompt.end());
    made_->ids.insert(made_->ids.end(), answer.begin(), answer.end());
    made_->begins.push_back(static_cast<int64_t>(made_->ids.size()));
    made_->prompts.push_back(static_cast<int64_t>(prompt.size()));
  }

  const PreferencePairs& options_;
  const Tokenizer& tokenizer_;
  std::optional<int64_t> end_;  // the token that ends a text
  std::vector<Row> waiting_;
  std::shared_ptr<EncodedPairs> made_ = std::make_shared<EncodedPairs>();
};

class PairDataset : public Dataset {
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
    const auto make = [&] { return PairMaker(options_, *tokenizer_).make(); };
    if (options_.cache == TokenCaching::kDisk) {
      TokenCacheKey key("pairs");
      key.add_tokenizer(options_.tokenizer).add_file(options_.path).add(options_.max_length);
      key.add(static_cast<int64_t>(options_.tokenize));
      use(arrays_on_disk(key.add(is_arrow_file(options_.path) ? 1 : 0).finish(), kPairArrays, make));
    } else {
      use(make());
    }
    if (lines_.empty()) throw DataError(options_.path + ": has no rows");
  }
  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }
  DatasetFacts facts() const override {
    DatasetFacts facts;
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      if (tokenizer_) field.padding = padding(name);
      return field;
    };
    facts.place = [this](int64_t index, const std::string& field) {
      return options_.path + ":" + std::to_string(lines_[static_cast<size_t>(index)]) + ":" + field;
    };
    // Both answers are made as long as the longest of a batch.
    facts.lengths = [this] { return std::get<0>(lengths_between(begins_).view({-1, 2}).max(1)); };
    facts.notes = [this] { return notes(); };
    return facts;
  }
  Batch get(const at::Tensor& indices) const override {
    int64_t longest = 0;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const size_t chosen = 2 * static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]);
      longest = std::max({longest, begins_[chosen + 1] - begins_[chosen], begins_[chosen + 2] - begins_[chosen + 1]});
    }
    Batch batch;
    add_answers(batch, "chosen", indices, 0, longest);
    add_answers(batch, "rejected", indices, 1, longest);
    return batch;
  }

 private:
  std::vector<std::string> notes() const {
    if (numbers_[0] == 0) return {};
    return {
        options_.path + ": " + std::to_string(numbers_[0]) + " of " + std::to_string(lines_.size()) +
        " prompts end within a token that continues into an answer; the answer is learnt from that token on, and the "
        "prompt ends before it. A prompt that ends where a token does, or tokenize: apart, keeps all its tokens"};
  }
  int64_t padding(const std::string& field) const {
    if (field.ends_with("_labels")) return kNoTarget;
    return field.ends_with("_input_ids") ? tokenizer_->pad_id().value_or(0) : 0;
  }
  void use(ByteArrays arrays) {
    arrays_ = std::move(arrays);
    ids_ = numbers_in<int32_t>(arrays_.arrays.at(0));
    begins_ = numbers_in<int64_t>(arrays_.arrays.at(1));
    prompts_ = numbers_in<int64_t>(arrays_.arrays.at(2));
    lines_ = numbers_in<int64_t>(arrays_.arrays.at(3));
    numbers_ = numbers_in<int64_t>(arrays_.arrays.at(4));
    bool fits = are_begins(begins_, prompts_.size(), ids_.size()) && prompts_.size() == 2 * lines_.size() &&
                numbers_.size() == 1;
    for (size_t i = 0; fits && i < prompts_.size(); ++i) {
      fits = prompts_[i] > 0 && prompts_[i] < begins_[i + 1] - begins_[i];  // an answer follows a prompt
    }
    if (!fits) throw DataError(options_.path + ": was changed while it was read");
  }

  /// `which`: 0 for chosen answers, 1 for rejected ones.
  void add_answers(Batch& batch, const std::string& name, const at::Tensor& indices, size_t which,
                   int64_t length) const {
    const int64_t n = indices.numel();
    const at::Tensor ids = at::full({n, length}, tokenizer_->pad_id().value_or(0), at::kLong);
    const at::Tensor mask = at::zeros({n, length}, at::kLong);
    const at::Tensor labels = at::full({n, length}, kNoTarget, at::kLong);
    for (int64_t i = 0; i < n; ++i) {
      const size_t text = 2 * static_cast<size_t>(indices.const_data_ptr<int64_t>()[i]) + which;
      const auto begin = ids_.begin() + begins_[text];
      const auto end = ids_.begin() + begins_[text + 1];
      const int64_t row = i * length;
      std::copy(begin, end, ids.mutable_data_ptr<int64_t>() + row);
      std::fill_n(mask.mutable_data_ptr<int64_t>() + row, end - begin, 1);
      const int64_t prompt = prompts_[text];  // its last token is followed by the answer's first
      std::copy(begin + prompt, end, labels.mutable_data_ptr<int64_t>() + row + prompt - 1);
    }
    batch.set(name + "_input_ids", ids);
    batch.set(name + "_attention_mask", mask);
    batch.set(name + "_labels", labels);
  }

  PreferencePairs options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ByteArrays arrays_;  // where the next five lie: see EncodedPairs
  std::span<const int32_t> ids_;
  std::span<const int64_t> begins_;
  std::span<const int64_t> prompts_;
  std::span<const int64_t> lines_;
  std::span<const int64_t> numbers_;
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
