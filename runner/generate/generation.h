#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/language/error.h"
#include "runner/generate/generation_settings.h"
#include "runner/generate/language_model.h"
#include "runner/generate/next_token.h"

namespace trainrun {

/// What a text begins with.
struct Prompt {
  std::string text;
  std::vector<int64_t> tokens;
  std::string origin;                         // for messages: "prompt 2", "prompts.txt:3"
  nlohmann::ordered_json messages = nullptr;  // where it is a conversation, which the text writes
};

/// A prompt of this text. Throws Error where it is empty or the model does not know its characters.
Prompt prompt_of(const std::string& text, const std::string& origin, const LanguageModel& model);
/// A prompt of these tokens. Throws Error where they are none, or the model has no such token.
Prompt prompt_of(const std::vector<int64_t>& tokens, const std::string& origin, const LanguageModel& model);

/// `options` with what ends a document of the data that the model is trained on.
GenerationSettings with_ends(GenerationSettings options, const LanguageModel& model);

/// The error of a model whose logits are NaN.
class NonFiniteLogits : public Error {
 public:
  using Error::Error;
};

/// What a model has made of a prompt.
struct GeneratedText {
  size_t prompt = 0;            // its number
  int64_t sample = 0;           // of num_samples
  std::string text;             // what follows the prompt
  std::vector<int64_t> tokens;  // the new ones
  std::string finish;           // "length", "stop" (one of `stop` came) or "end" (a token that ends a text)
};

/// Generates continuations of prompts. A continuation depends on the prompt, the seed and the number of the sample, not
/// on the other prompts of its batch.
class Generator {
 public:
  /// Takes the newest piece of a text that cannot change any more.
  using Stream = std::function<void(std::string_view piece)>;

  /// Throws Error if the model is not a language model. It must outlive this.
  Generator(const LanguageModel& model, GenerationSettings options, bool use_cache = true);

  const NextToken& next_token() const { return next_; }
  /// All samples of all prompts, those of a prompt one after the other, `batch_size` texts at once. `stream`: gets a
  /// single text as it comes; null, or several texts: none. Throws NonFiniteLogits,
  /// ComponentError.
  std::vector<GeneratedText> run(const std::vector<Prompt>& prompts, int64_t batch_size,
                                 const Stream& stream = nullptr);

 private:
  class Row;
  void run_batch(std::vector<Row>& rows);

  const LanguageModel& model_;
  GenerationSettings options_;
  NextToken next_;
};

}  // namespace trainrun
