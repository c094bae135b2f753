#include "registry/formats/text/sentence_piece_model.h"

#include <protozero/pbf_reader.hpp>

#include <cmath>

#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using protozero::pbf_reader;

// A field by its number and how it is written: one that is written in another way is none of ours, and is passed over
// as unknown fields are; protozero's readers would end the program.
constexpr uint32_t number(protozero::pbf_tag_type tag) {
  return protozero::tag_and_type(tag, protozero::pbf_wire_type::varint);
}
constexpr uint32_t bytes(protozero::pbf_tag_type tag) {
  return protozero::tag_and_type(tag, protozero::pbf_wire_type::length_delimited);
}
constexpr uint32_t float32(protozero::pbf_tag_type tag) {
  return protozero::tag_and_type(tag, protozero::pbf_wire_type::fixed32);
}

template <class Enum>
Enum read_enum(pbf_reader& message, Enum most, const std::string& what) {
  const int32_t value = message.get_enum();
  if (value < 1 || value > static_cast<int32_t>(most)) {
    throw DataError(what + " is " + std::to_string(value) + "; expected 1 to " +
                    std::to_string(static_cast<int32_t>(most)));
  }
  return static_cast<Enum>(value);
}

SentencePieceModel::Piece read_piece(pbf_reader message) {
  SentencePieceModel::Piece piece;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case bytes(1):
        piece.text = message.get_string();
        break;
      case float32(2):
        piece.score = message.get_float();
        break;
      case number(3):
        piece.type = read_enum(message, SentencePieceModel::Type::kByte, "the type of \"" + piece.text + "\"");
        break;
      default:
        message.skip();
    }
  }
  if (piece.text.empty() || !unicode::is_valid(piece.text)) throw DataError("a piece is empty or is not UTF-8");
  if (!std::isfinite(piece.score)) throw DataError("the score of \"" + piece.text + "\" is not a number");
  return piece;
}

void read_trainer(pbf_reader message, SentencePieceModel& model) {
  constexpr protozero::pbf_tag_type kModelType = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35, kUnknownId = 40;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case number(kModelType):
        model.kind = read_enum(message, SentencePieceModel::Kind::kCharacter, "the kind of model");
        break;
      case number(kWhitespaceAsSuffix):
        model.suffix_whitespace = message.get_bool();
        break;
      case number(kByteFallback):
        model.byte_fallback = message.get_bool();
        break;
      case number(kUnknownId):
        model.unknown = message.get_int32();
        break;
      default:
        message.skip();  // how it was trained
    }
  }
}

void read_normalization(pbf_reader message, SentencePieceModel& model) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case bytes(2):
        model.charsmap = message.get_bytes();
        break;
      case number(3):
        model.dummy_prefix = message.get_bool();
        break;
      case number(4):
        model.remove_extra_whitespaces = message.get_bool();
        break;
      case number(5):
        model.escape_whitespaces = message.get_bool();
        break;
      default:
        message.skip();  // names, and the rules that the table was made from
    }
  }
}

SentencePieceModel read_messages(const std::string& content) {
  SentencePieceModel model;
  pbf_reader message(content);
  while (message.next()) {
    switch (message.tag_and_type()) {
      case bytes(1):
        model.pieces.push_back(read_piece(message.get_message()));
        break;
      case bytes(2):
        read_trainer(message.get_message(), model);
        break;
      case bytes(3):
        read_normalization(message.get_message(), model);
        break;
      default:
        message.skip();  // what it was tested with
    }
  }
  return model;
}

}  // namespace

SentencePieceModel read_sentence_piece_model(const std::string& content) {
  try {
    SentencePieceModel model = read_messages(content);
    if (model.pieces.empty()) throw DataError("there are no pieces in it");
    const auto size = static_cast<int64_t>(model.pieces.size());
    if (model.unknown < 0 || model.unknown >= size) {
      throw DataError("the id of the unknown piece, " + std::to_string(model.unknown) + ", is none of " +
                      std::to_string(size) + " pieces");
    }
    return model;
  } catch (const protozero::exception& error) {
    throw DataError(std::string("not a SentencePiece model, or damaged: ") + error.what());
  }
}

}  // namespace trainrun
