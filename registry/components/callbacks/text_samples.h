#pragma once

#include <string>
#include <vector>

#include "registry/kinds/generation_options.h"

namespace trainrun {

/// What a run offers to callbacks that have its model write texts.
class TextSource {
 public:
  virtual ~TextSource() = default;
  /// Throws Error where the model is not a language model, the data name no tokenizer, a prompt cannot be read, or the
  /// run makes no evaluations.
  virtual void check(const std::vector<std::string>& prompts) = 0;
  /// Continues the prompts with the model as evaluations see it, and shows the texts on the console and in the run's
  /// folder. Training goes on as if nothing had been: no random number is drawn from its generators. Every rank calls it.
  virtual void show(const std::vector<std::string>& prompts, const GenerationOptions& options) = 0;
};

/// A callback that does so.
class WritesTexts {
 public:
  virtual ~WritesTexts() = default;
  /// Before the training begins; `source` lives as long as the callback.
  virtual void use(TextSource& source) = 0;
};

}  // namespace trainrun
