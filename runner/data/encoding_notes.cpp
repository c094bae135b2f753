#include "runner/data/encoding_notes.h"

#include <algorithm>
#include <array>

#include "registry/data/path_patterns.h"
#include "registry/data/text_file.h"

namespace trainrun {
namespace {

/// What the data set says; UTF-8 where it says nothing.
TextEncoding encoding_in(const Value& dataset) {
  const Value* encoding = dataset.is_map() ? dataset.find("encoding") : nullptr;
  if (!encoding || !encoding->is_scalar()) return TextEncoding::kUtf8;
  const auto& words = Words<TextEncoding>::kWords;
  const auto* word = std::find(words.begin(), words.end(), encoding->text());
  return word == words.end() ? TextEncoding::kUtf8 : static_cast<TextEncoding>(word - words.begin());
}

/// The files that it names in `path`.
std::vector<std::string> files_in(const Value& dataset) {
  const Value* path = dataset.find("path");
  std::vector<std::string> patterns;
  if (path && path->is_scalar()) patterns.push_back(path->text());
  if (path && path->is_list()) {
    for (const Value& one : path->items()) {
      if (one.is_scalar()) patterns.push_back(one.text());
    }
  }
  try {
    return matching_paths(patterns, "encoding");
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

void add_encoding_notes(const Value& written, const std::string& path, std::vector<Problem>& notes) {
  if (encoding_in(written) != TextEncoding::kUtf8) {
    for (const std::string& note : encoding_notes(written, files_in(written))) {
      notes.push_back({written.find("encoding")->place(), path + ".encoding", note});
    }
  }
  for (size_t i = 0; i < written.items().size(); ++i) {
    add_encoding_notes(written.items()[i], path + "[" + std::to_string(i) + "]", notes);
  }
  for (const Value::Entry& entry : written.entries()) {
    add_encoding_notes(entry.value, path + "." + entry.key, notes);
  }
}

std::vector<std::string> encoding_notes(const Value& dataset, const std::vector<std::string>& files) {
  std::vector<std::string> notes;
  for (const std::string& file : files) {
    if (std::string note = encoding_note(file, encoding_in(dataset)); !note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace trainrun
