#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "registry/formats/text/tokenizer.h"
#include "registry/kinds/dataset.h"
#include "registry/text_data/answer_texts.h"

namespace trainrun {

/// Prompts with answers, as tokens: texts, or messages that the chat template writes. Of several answers without a
/// prompt, what they begin with alike is the prompt, as in trl. Both are cut to max_length when a batch is made.
class AnsweredPrompts : public Dataset {
 public:
  AnsweredPrompts(AnswerOptions options, AnswerKeys keys) : options_(std::move(options)), keys_(std::move(keys)) {}

  void open() override;
  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }
  DatasetFacts facts() const override;

 protected:
  const AnswerOptions& options() const { return options_; }
  /// Before `open`: throws DataError where the first rows lack what is asked of them.
  void look() const;
  /// The fields of one text: `prefix` + input_ids, attention_mask, labels.
  void add_fields(DatasetInfo& info, const std::string& prefix) const;

  /// A prompt of one row, and an answer which may be another row's.
  struct Text {
    int64_t prompt = 0;
    int64_t answer = 0;
    size_t which = 0;  // of the row's answers
  };
  int64_t length_of(const Text& text) const;
  /// The fields of `texts`, filled up to `length`; labels are shifted already.
  void add_texts(Batch& batch, const std::string& prefix, const std::vector<Text>& texts, int64_t length) const;
  int64_t line(int64_t row) const { return lines_[static_cast<size_t>(row)]; }
  float number_of(int64_t row) const { return values_[static_cast<size_t>(row)]; }

 private:
  std::span<const int32_t> prompt_of(int64_t row) const;
  std::span<const int32_t> answer_of(int64_t row, size_t which) const;
  void use(ByteArrays arrays);
  std::vector<std::string> notes() const;
  at::Tensor lengths() const;

  AnswerOptions options_;
  AnswerKeys keys_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ByteArrays arrays_;  // where the next five lie: see EncodedAnswers
  std::span<const int32_t> ids_;
  std::span<const int64_t> begins_;
  std::span<const int64_t> lines_;
  std::span<const float> values_;
  std::span<const int64_t> numbers_;
};

}  // namespace trainrun
