#include "runner/generate/text_codec.h"

#include <algorithm>

#include "registry/data/characters.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"
#include "runner/data/kept_tokenizers.h"

namespace trainrun {
namespace {

class Characters : public TextCodec {
 public:
  explicit Characters(const std::string& alphabet)
      : characters_(code_points(alphabet, "the checkpoint's characters")), alphabet_(characters_) {}

  std::vector<int64_t> encode(const std::string& text, const std::string& origin) const override {
    const std::vector<uint32_t> numbers = alphabet_.encode(code_points(text, origin), origin);
    return {numbers.begin(), numbers.end()};
  }
  std::string decode(const std::vector<int64_t>& tokens, bool) const override {
    std::string text;
    for (const int64_t token : tokens) {
      if (token >= 0 && token < vocab_size()) text += utf8_of(characters_[static_cast<size_t>(token)]);
    }
    return text;
  }
  std::optional<int64_t> id_of(const std::string& token) const override {
    for (int64_t id = 0; id < vocab_size(); ++id) {
      if (this->token(id) == token) return id;
    }
    return std::nullopt;
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::string token(int64_t id) const override {
    return id >= 0 && id < vocab_size() ? utf8_of(characters_[static_cast<size_t>(id)]) : std::to_string(id);
  }

 private:
  std::vector<uint32_t> characters_;  // sorted, as the alphabet has them
  Alphabet alphabet_;
};

class Tokens : public TextCodec {
 public:
  Tokens(const TokenizerSource& source, bool with_special_tokens)
      : tokenizer_(open_tokenizer(source)),
        notes_(tokenizer_notes(source.path)),
        with_special_tokens_(with_special_tokens) {}

  std::vector<int64_t> encode(const std::string& text, const std::string&) const override {
    return tokenizer_->encode(text, with_special_tokens_).ids;
  }
  std::string decode(const std::vector<int64_t>& tokens, bool with_special_tokens) const override {
    return tokenizer_->decode(tokens, !with_special_tokens);
  }
  std::optional<int64_t> id_of(const std::string& token) const override { return tokenizer_->id_of(token); }
  bool has_special_token(const std::string& text) const override {
    const std::vector<int64_t> ids = tokenizer_->encode(text, /*add_special_tokens=*/false).ids;
    return std::ranges::any_of(ids, [&](int64_t id) {
      return tokenizer_->decode({id}, true).empty() && !tokenizer_->decode({id}, false).empty();
    });
  }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string token(int64_t id) const override { return tokenizer_->token_of(id).value_or(std::to_string(id)); }
  std::optional<int64_t> unknown_token() const override { return tokenizer_->special_id("unk"); }
  std::vector<std::string> notes() const override { return notes_; }
  std::optional<int64_t> end_token() const override { return tokenizer_->special_id("eos"); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> notes_;
  bool with_special_tokens_;
};

/// The first text under `key` in a mapping or in what lies within it.
std::optional<std::string> find_text(const nlohmann::json& json, const std::string& key) {
  if (json.is_object() && json.contains(key) && json[key].is_string()) return json[key].get<std::string>();
  if (!json.is_structured()) return std::nullopt;
  for (const auto& item : json) {
    if (auto found = find_text(item, key)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> find_text(const Value& value, const std::string& key) {
  if (const Value* own = value.find(key); own && own->is_scalar()) return own->text();
  for (const Value::Entry& entry : value.entries()) {
    if (auto found = find_text(entry.value, key)) return found;
  }
  for (const Value& item : value.items()) {
    if (auto found = find_text(item, key)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> ends_of_documents(const Recipe& recipe) {
  return texts_under(recipe.dataset.train.written, "end_of_document");
}

std::vector<std::string> notes_of_tokenizers(const Recipe& recipe) {
  std::vector<std::string> notes;
  for (const std::string& tokenizer : named_tokenizers(recipe)) {
    for (std::string& note : tokenizer_notes(tokenizer)) {
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
    }
  }
  return notes;
}

std::shared_ptr<const TextCodec> characters_codec(const std::string& alphabet) {
  return std::make_shared<Characters>(alphabet);
}

std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& path, bool with_special_tokens) {
  return std::make_shared<Tokens>(TokenizerSource{path, {}}, with_special_tokens);
}

std::optional<std::string> characters_in(const nlohmann::json& learnt) { return find_text(learnt, kCharacters); }

std::shared_ptr<const TextCodec> codec_of_data(const Recipe& recipe, const nlohmann::json& learnt) {
  const auto tokenizer = find_text(recipe.dataset.train.written, "tokenizer");
  if (tokenizer && *tokenizer != kCharacters) {
    return std::make_shared<Tokens>(recipe.dataset.in(*tokenizer), /*with_special_tokens=*/false);
  }
  const auto alphabet = characters_in(learnt);
  return alphabet ? characters_codec(*alphabet) : nullptr;
}

}  // namespace trainrun
