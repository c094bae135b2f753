#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "registry/formats/text/chat_template.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/language/codec.h"
#include "registry/language/named.h"
#include "registry/language/parameters.h"
#include "registry/text_data/token_cache.h"

namespace trainrun {

/// Which chat template writes conversations.
struct TemplateOptions {
  std::optional<std::string> chat_template;
  Named<std::variant<bool, int64_t, double, std::string>> template_variables;

  template <class T>
  static void describe_into(Fields<T>& f) {
    f.optional("template", &T::chat_template)
        .doc(
            "the chat template: a file, the text of a Jinja template, or the name of one of several that the tokenizer "
            "has; null: the tokenizer's own");
    f.optional("template_variables", &T::template_variables)
        .doc(
            "further variables that the template reads, by their names, as in {enable_thinking: false, date_string: 26 "
            "Jul 2024}");
  }
  void check(Checker& checker) const;
};

/// The chat template, which is read when it is first asked for.
class TemplateOnDemand {
 public:
  /// `options` must outlive this.
  TemplateOnDemand(TokenizerSource tokenizer, const TemplateOptions& options)
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  /// Throws DataError where there is none, or it cannot be read.
  std::shared_ptr<const ChatTemplate> get();
  /// Adds what its texts depend on: also the day, where they name it.
  void add_to(TokenCacheKey& key);

 private:
  std::string day_in_texts();

  TokenizerSource tokenizer_;
  const TemplateOptions& options_;
  std::shared_ptr<const ChatTemplate> template_;
};

}  // namespace trainrun
