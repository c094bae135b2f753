#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

/// What a tokenizer.model says. Source: SentencePiece's sentencepiece_model.proto, whose numbers these are.
struct SentencePieceModel {
  enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  enum class Kind { kUnigram = 1, kBytePair = 2, kWord = 3, kCharacter = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  int64_t unknown = 0;
  std::string charsmap;
  bool dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true, suffix_whitespace = false;
};

/// Throws DataError, which does not name the file, for what is damaged or cannot be.
SentencePieceModel read_sentence_piece_model(const std::string& content);

}  // namespace trainrun
