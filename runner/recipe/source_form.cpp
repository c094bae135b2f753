#include "runner/recipe/source_form.h"

#include <utility>

#include "registry/language/interpolation.h"

namespace trainrun {

Value escaped(Value value) {
  if (value.is_scalar()) return Value::scalar(escape_references(value.text()), value.quoted(), value.place());
  for (Value& item : value.items()) item = escaped(std::move(item));
  for (Value::Entry& entry : value.entries()) entry.value = escaped(std::move(entry.value));
  return value;
}

std::string first_reference(const Value& value) {
  if (value.is_scalar() && value.text().find("${") != std::string::npos) {
    for (const TextPiece& piece : parse_pieces(value.text())) {
      if (piece.kind != TextPiece::Kind::kLiteral) return piece.source;
    }
  }
  for (const Value& item : value.items()) {
    if (std::string found = first_reference(item); !found.empty()) return found;
  }
  for (const Value::Entry& entry : value.entries()) {
    if (std::string found = first_reference(entry.value); !found.empty()) return found;
  }
  return "";
}

void TextBuilder::add_parameter(const std::string& source) {
  flush();
  clash_ = clash_ || text_.ends_with('$');
  text_ += source;
}

void TextBuilder::add_source_form(std::string_view text) {
  for (const TextPiece& piece : parse_pieces(text)) {
    if (piece.kind == TextPiece::Kind::kLiteral) {
      add_literal(piece.text);
    } else {
      add_parameter(piece.source);
    }
  }
}

std::string TextBuilder::take() {
  flush();
  return std::move(text_);
}

void TextBuilder::flush() {
  text_ += source_form_ ? escape_references(literal_) : literal_;
  literal_.clear();
}

}  // namespace trainrun
