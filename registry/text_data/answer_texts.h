#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <vector>

#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/text_data/template_on_demand.h"
#include "registry/text_data/token_cache.h"

namespace trainrun {

/// Where the tokens of a prompt and its answer come from.
enum class PairTokens { kTogether, kApart };
template <>
struct Words<PairTokens> {
  static constexpr std::array kWords = {"together", "apart"};
};

/// How prompts with answers are read and become tokens.
struct AnswerOptions : TemplateOptions, NewTokens {
  std::string path;
  std::string tokenizer;
  int64_t max_length = 1024;
  PairTokens tokenize = PairTokens::kTogether;
  TokenCaching cache = TokenCaching::kNone;

  /// `of_file`: the documentation of `path`.
  template <class T>
  static void describe_into(Fields<T>& f, const char* of_file) {
    f.required("path", &T::path).doc(of_file);
    f.required("tokenizer", &T::tokenizer)
        .doc("a folder in Hugging Face's layout, or one of a tokenizer's files, or the name of a model on its hub");
    NewTokens::describe_into(f);
    TemplateOptions::describe_into(f);
    f.optional("max_length", &T::max_length)
        .at_least(2)
        .unit("tokens")
        .doc("a prompt with its answer is cut to this, at its end");
    f.optional("tokenize", &T::tokenize)
        .doc(
            "together: a prompt with its answer is one text, with the special tokens that the tokenizer puts around "
            "it, and the answer begins where the tokens of the prompt alone and of both texts part, as in trl 1.16; "
            "apart: each is a text of its own, without special tokens, as in earlier releases of trl. In both, the "
            "answer ends with the tokenizer's end of text. Messages are always together, as the chat template writes "
            "them");
    f.optional("cache", &T::cache).doc(kTokenCachingHelp);
  }
};

/// What the rows of a file hold: a `prompt` with answers to it and, perhaps, a number.
struct AnswerKeys {
  std::vector<std::string> answers;  // their keys: {"chosen", "rejected"}
  std::string number;                // its key; "" for none
  bool is_flag = false;              // the number is true or false
};

/// A row of a file of prompts with answers, as texts that are to become tokens.
struct AnswerTexts {
  int64_t line = 0;
  bool is_chat = false;              // the template has written them, special tokens included
  std::string prompt;                // up to where an answer begins
  std::vector<std::string> answers;  // after the prompt; with it where they become tokens together
  double number = 0;                 // what AnswerKeys::number names
};

/// Reads rows.
class AnswerReader {
 public:
  /// All must outlive this.
  AnswerReader(const AnswerOptions& options, const AnswerKeys& keys, const Tokenizer& tokenizer,
               TemplateOnDemand& chat_template);

  /// Throws DataError naming file, line and key.
  AnswerTexts read(const nlohmann::ordered_json& row, int64_t line);
  std::string place(int64_t line) const { return options_.path + ":" + std::to_string(line); }

 private:
  using Json = nlohmann::ordered_json;
  [[noreturn]] void fail(int64_t line, const std::string& key, const std::string& what) const;
  std::string text_of(const Json& row, const std::string& key, int64_t line) const;
  Json messages_of(const Json& row, const std::string& key, int64_t line) const;
  void read_texts(const Json& row, AnswerTexts& made) const;
  void read_messages(const Json& row, AnswerTexts& made);
  double number_of(const Json& row, int64_t line) const;
  std::string ended(const std::string& text) const;

  const AnswerOptions& options_;
  const AnswerKeys& keys_;
  TemplateOnDemand& template_;
  std::string end_;  // the token that ends a text; "" for none
};

/// The texts that all `texts` begin with, and what is left of each, as trl's extract_prompt splits them.
std::string taken_prompt(std::vector<std::string>& texts);

}  // namespace trainrun
