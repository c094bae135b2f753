#include "registry/formats/text/text_model.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

int64_t unknown_id(const Vocabulary& vocabulary, const std::string& unknown) {
  const auto id = vocabulary.find(unknown);
  if (!id) throw DataError("the unknown token \"" + unknown + "\" is not in the vocabulary");
  return *id;
}

class WordPiece final : public TextModel {
 public:
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
      : TextModel(std::move(vocabulary)), options_(options), unknown_(unknown_id(vocabulary_, options.unknown)) {}

  void encode(std::string_view word, std::vector<int64_t>& ids) const override {
    if (unicode::count(word) > static_cast<size_t>(options_.most_characters)) return ids.push_back(unknown_);
    const size_t before = ids.size();
    std::string prefixed;
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.size();
      std::optional<int64_t> id;
      for (; end > begin; end = unicode::start_of_last(word, end)) {
        std::string_view piece = word.substr(begin, end - begin);
        if (begin > 0) piece = prefixed.assign(options_.continuing_prefix).append(piece);
        id = vocabulary_.find(piece);
        if (id) break;
      }
      if (!id) {
        ids.resize(before);
        ids.push_back(unknown_);
        return;
      }
      ids.push_back(*id);
      begin = end;
    }
  }

 private:
  WordPieceOptions options_;
  int64_t unknown_;
};

class WordLevel final : public TextModel {
 public:
  WordLevel(Vocabulary vocabulary, const std::string& unknown)
      : TextModel(std::move(vocabulary)), unknown_(unknown_id(vocabulary_, unknown)) {}

  void encode(std::string_view word, std::vector<int64_t>& ids) const override {
    ids.push_back(vocabulary_.find(word).value_or(unknown_));
  }

 private:
  int64_t unknown_;
};

}  // namespace

std::unique_ptr<TextModel> word_piece_model(Vocabulary vocabulary, const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(std::move(vocabulary), options);
}

std::unique_ptr<TextModel> word_level_model(Vocabulary vocabulary, const std::string& unknown) {
  return std::make_unique<WordLevel>(std::move(vocabulary), unknown);
}

}  // namespace trainrun
