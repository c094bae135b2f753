#include "registry/text_data/answers.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "registry/data/tables/arrow_library.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/text_data/answer_texts.h"
#include "registry/text_data/conversations.h"
#include "registry/text_data/first_rows.h"
#include "registry/text_data/text_fields.h"

namespace trainrun {
namespace {

constexpr size_t kAnswerArrays = 5;
/// What EncodedAnswers::numbers count: prompts that lost their end, which became one token with an answer's begin; texts
/// that are longer than max_length.
enum AnswerCount : size_t { kJoined, kCutOff, kCounts };

/// The rows' prompts and their answers: of each row the prompt, then the answers. The end-of-text token, if the
/// tokenizer has one, is the answer's last, but for what the tokenizer puts after a text.
struct EncodedAnswers {
  std::vector<int32_t> ids;           // of all, one after the other
  std::vector<int64_t> begins = {0};  // of each, and the end
  std::vector<int64_t> lines;         // of each row
  std::vector<float> values;          // likewise
  std::vector<int64_t> numbers = std::vector<int64_t>(kCounts);

  ByteArrays arrays(std::shared_ptr<const void> owner) const {
    return {std::move(owner), {bytes_of(ids), bytes_of(begins), bytes_of(lines), bytes_of(values), bytes_of(numbers)}};
  }
};

class AnswerMaker {
 public:
  AnswerMaker(const AnswerOptions& options, const AnswerKeys& keys, const Tokenizer& tokenizer,
              TemplateOnDemand& chat_template)
      : options_(options),
        keys_(keys),
        tokenizer_(tokenizer),
        end_(tokenizer.special_id("eos")),
        reader_(options, keys, tokenizer, chat_template) {}

  ByteArrays make() {
    std::vector<std::string> columns = keys_.answers;
    columns.insert(columns.end(), {"prompt", "tools"});
    if (!keys_.number.empty()) columns.push_back(keys_.number);
    for_each_row(options_.path, columns, [&](const nlohmann::ordered_json& row, int64_t line) {
      constexpr size_t kAtOnce = 512;
      AnswerTexts texts = reader_.read(row, line);
      const bool is_other = !waiting_.empty() && waiting_[0].is_chat != texts.is_chat;
      if (is_other || waiting_.size() == kAtOnce) encode();
      waiting_.push_back(std::move(texts));
    });
    encode();
    return made_->arrays(made_);
  }

 private:
  using Ids = std::vector<int64_t>;

  /// All that wait, which are of one kind.
  void encode() {
    if (waiting_.empty()) return;
    const bool is_chat = waiting_[0].is_chat;
    const bool together = options_.tokenize == PairTokens::kTogether;
    std::vector<TextPair> texts;
    for (const AnswerTexts& row : waiting_) {
      texts.push_back({row.prompt, std::nullopt});
      for (const std::string& answer : row.answers) texts.push_back({answer, std::nullopt});
    }
    const auto encoded = encode_batch(tokenizer_, texts, std::nullopt, /*add_special_tokens=*/together && !is_chat);
    auto next = encoded.begin();
    for (const AnswerTexts& row : waiting_) {
      Ids prompt = (next++)->ids;
      std::vector<Ids> answers;
      for (size_t i = 0; i < row.answers.size(); ++i) answers.push_back((next++)->ids);
      if (together) cut_prompt(prompt, answers, row.line);
      keep(prompt, answers, row);
    }
    waiting_.clear();
  }

  /// Leaves of the prompt what begins all wholes, and of these what comes after that.
  void cut_prompt(Ids& prompt, std::vector<Ids>& answers, int64_t line) {
    size_t length = prompt.size();
    for (const Ids& whole : answers) {
      const auto part = std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end()).first;
      length = std::min(length, static_cast<size_t>(part - prompt.begin()));
    }
    if (length == 0 && !prompt.empty()) {
      throw DataError(
          reader_.place(line) +
          ":prompt: none of its tokens is left where it is one text with its answers; write tokenize: apart");
    }
    made_->numbers[kJoined] += prompt.size() > length ? 1 : 0;
    prompt.resize(length);
    for (Ids& answer : answers) answer.erase(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(length));
  }

  void keep(const Ids& prompt, std::vector<Ids>& answers, const AnswerTexts& row) {
    const std::string place = reader_.place(row.line) + ":";
    const auto most = static_cast<size_t>(options_.max_length);
    if (prompt.empty()) throw DataError(place + "prompt: is empty, but an answer needs a token before it");
    add(prompt);
    for (size_t i = 0; i < answers.size(); ++i) {
      if (end_ && options_.tokenize == PairTokens::kApart) answers[i].push_back(*end_);
      if (answers[i].empty() || prompt.size() >= most) {
        throw DataError(place + keys_.answers[i] + ": " +
                        (prompt.size() >= most ? "its prompt alone has " + std::to_string(prompt.size()) +
                                                     " tokens, and max_length is " + std::to_string(most)
                                               : "is empty, and the tokenizer has no token for the end of a text"));
      }
      made_->numbers[kCutOff] += prompt.size() + answers[i].size() > most ? 1 : 0;
      add(answers[i]);
    }
    made_->lines.push_back(row.line);
    made_->values.push_back(static_cast<float>(row.number));
  }
  void add(const Ids& ids) {
    made_->ids.insert(made_->ids.end(), ids.begin(), ids.end());
    made_->begins.push_back(static_cast<int64_t>(made_->ids.size()));
  }

  const AnswerOptions& options_;
  const AnswerKeys& keys_;
  const Tokenizer& tokenizer_;
  std::optional<int64_t> end_;  // the token that ends a text
  AnswerReader reader_;
  std::vector<AnswerTexts> waiting_;
  std::shared_ptr<EncodedAnswers> made_ = std::make_shared<EncodedAnswers>();
};

}  // namespace

void AnsweredPrompts::open() {
  tokenizer_ = open_tokenizer(options_.in(options_.tokenizer));
  TemplateOnDemand chat_template(options_.in(options_.tokenizer), options_);
  const auto make = [&] { return AnswerMaker(options_, keys_, *tokenizer_, chat_template).make(); };
  if (options_.cache == TokenCaching::kDisk) {
    TokenCacheKey key("answers");
    key.add_tokenizer(options_.in(options_.tokenizer)).add_file(options_.path).add(options_.max_length);
    key.add(static_cast<int64_t>(options_.tokenize)).add(is_arrow_file(options_.path) ? 1 : 0);
    for (const std::string& name : keys_.answers) key.add(name);
    key.add(keys_.number);
    chat_template.add_to(key);
    use(arrays_on_disk(key.finish(), kAnswerArrays, make));
  } else {
    use(make());
  }
  if (lines_.empty()) throw DataError(options_.path + ": has no rows");
}

void AnsweredPrompts::look() const {
  if (!lines_.empty()) return;
  std::vector<std::string> needed = keys_.answers;
  if (!keys_.number.empty()) needed.push_back(keys_.number);
  look_at_first_rows(options_.path, [&](const std::function<void()>& count) {
    for_each_row(options_.path, needed, [&](const nlohmann::ordered_json& row, int64_t line) {
      for (const std::string& key : needed) {
        if (row.contains(key)) continue;
        std::vector<std::string> keys;
        for (const auto& [other, unused] : row.items()) keys.push_back(other);
        throw DataError(options_.path + ":" + std::to_string(line) + ": has no key '" + key + "'" +
                        suggestion(key, keys));
      }
      count();
    });
  });
}

void AnsweredPrompts::use(ByteArrays arrays) {
  arrays_ = std::move(arrays);
  ids_ = numbers_in<int32_t>(arrays_.arrays.at(0));
  begins_ = numbers_in<int64_t>(arrays_.arrays.at(1));
  lines_ = numbers_in<int64_t>(arrays_.arrays.at(2));
  values_ = numbers_in<float>(arrays_.arrays.at(3));
  numbers_ = numbers_in<int64_t>(arrays_.arrays.at(4));
  const size_t texts = lines_.size() * (1 + keys_.answers.size());
  bool fits = are_begins(begins_, texts, ids_.size()) && values_.size() == lines_.size() && numbers_.size() == kCounts;
  for (size_t i = 0; fits && i < texts; ++i) fits = begins_[i] < begins_[i + 1];
  if (!fits) throw DataError(options_.path + ": was changed while it was read");
}

DatasetFacts AnsweredPrompts::facts() const {
  DatasetFacts facts;
  facts.field = [this](const std::string& name) { return text_field(name, tokenizer_.get()); };
  facts.place = [this](int64_t index, const std::string& field) {
    return options_.path + ":" + std::to_string(lines_[static_cast<size_t>(index)]) + ":" + field;
  };
  // All answers are made as long as the longest of a batch.
  facts.lengths = [this] { return lengths(); };
  facts.notes = [this] { return notes(); };
  return facts;
}

at::Tensor AnsweredPrompts::lengths() const {
  std::vector<int64_t> longest;
  for (int64_t row = 0; row < size(); ++row) {
    longest.push_back(0);
    for (size_t i = 0; i < keys_.answers.size(); ++i)
      longest.back() = std::max(longest.back(), length_of({row, row, i}));
  }
  return at::tensor(longest, at::kLong);
}

std::vector<std::string> AnsweredPrompts::notes() const {
  std::vector<std::string> notes;
  if (numbers_[kJoined] > 0) {
    notes.push_back(
        options_.path + ": " + std::to_string(numbers_[kJoined]) + " of " + std::to_string(lines_.size()) +
        " prompts end within a token that continues into an answer; the answer is learnt from that token on, and the "
        "prompt ends before it. A prompt that ends where a token does, or tokenize: apart, keeps all its tokens");
  }
  if (numbers_[kCutOff] > 0) {
    notes.push_back(options_.path + ": " + std::to_string(numbers_[kCutOff]) + " of " +
                    std::to_string(lines_.size() * keys_.answers.size()) +
                    " answers are cut off at the max_length of " + std::to_string(options_.max_length) + " tokens");
  }
  return notes;
}

void AnsweredPrompts::add_fields(DatasetInfo& info, const std::string& prefix) const {
  for (const char* field : {"input_ids", "attention_mask", "labels"}) {
    info.fields.push_back({prefix + field, {options_.max_length}, at::kLong, std::nullopt});
  }
}

std::span<const int32_t> AnsweredPrompts::prompt_of(int64_t row) const {
  const size_t text = static_cast<size_t>(row) * (1 + keys_.answers.size());
  return ids_.subspan(static_cast<size_t>(begins_[text]), static_cast<size_t>(begins_[text + 1] - begins_[text]));
}

std::span<const int32_t> AnsweredPrompts::answer_of(int64_t row, size_t which) const {
  const size_t text = static_cast<size_t>(row) * (1 + keys_.answers.size()) + 1 + which;
  return ids_.subspan(static_cast<size_t>(begins_[text]), static_cast<size_t>(begins_[text + 1] - begins_[text]));
}

int64_t AnsweredPrompts::length_of(const Text& text) const {
  const size_t size = prompt_of(text.prompt).size() + answer_of(text.answer, text.which).size();
  return std::min(options_.max_length, static_cast<int64_t>(size));
}

void AnsweredPrompts::add_texts(Batch& batch, const std::string& prefix, const std::vector<Text>& texts,
                                int64_t length) const {
  const auto n = static_cast<int64_t>(texts.size());
  const at::Tensor ids = at::full({n, length}, text_padding("input_ids", *tokenizer_), at::kLong);
  const at::Tensor mask = at::zeros({n, length}, at::kLong);
  const at::Tensor labels = at::full({n, length}, kNoLabel, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const Text& text = texts[static_cast<size_t>(i)];
    const auto prompt = prompt_of(text.prompt);
    const auto room = static_cast<size_t>(length_of(text)) - prompt.size();
    const auto answer = answer_of(text.answer, text.which).first(room);
    int64_t* row = ids.mutable_data_ptr<int64_t>() + i * length;
    std::copy(answer.begin(), answer.end(), std::copy(prompt.begin(), prompt.end(), row));
    std::fill_n(mask.mutable_data_ptr<int64_t>() + i * length, prompt.size() + answer.size(), 1);
    // The prompt's last token is followed by the answer's first.
    std::copy(answer.begin(), answer.end(), labels.mutable_data_ptr<int64_t>() + i * length + prompt.size() - 1);
  }
  batch.set(prefix + "input_ids", ids);
  batch.set(prefix + "attention_mask", mask);
  batch.set(prefix + "labels", labels);
}

}  // namespace trainrun
