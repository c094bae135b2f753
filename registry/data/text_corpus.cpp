#include "registry/data/text_corpus.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

#include "registry/data/tables/arrow_library.h"
#include "registry/formats/files/json_depth.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

constexpr size_t kMostText = size_t{1} << 36;  // 64 GiB: what is longer is not a text, but gzip's answer to a bomb

}  // namespace

std::string read_text_file(const std::string& path, std::optional<TextEncoding> encoding) {
  constexpr size_t kPiece = size_t{1} << 22;
  TextFile file(path, encoding);
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const size_t count = file.read(text.data() + before, kPiece);
    text.resize(before + count);
    if (count < kPiece) return text;
    if (text.size() > kMostText) throw DataError(path + ": is longer than 64 GiB; split it, or use a TokenFile");
  }
}

void for_each_line(const std::string& path, std::optional<TextEncoding> encoding,
                   const std::function<void(std::string_view line, int64_t number)>& take) {
  TextLines lines(path, encoding);
  for (std::string whole; lines.next(whole);) {
    std::string_view line = whole;
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) take(line, lines.number());
  }
}

bool is_jsonl(const std::string& path) { return has_extension(path, ".jsonl") || has_extension(path, ".json"); }

std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : object.items()) keys.push_back(key);
  return keys;
}

bool has_documents(const std::string& path) { return is_jsonl(path) || is_arrow_file(path); }

std::string json_fault(const std::exception& error) {
  const std::string text = error.what();
  const size_t end_of_number = text.find("] ");
  return end_of_number == std::string::npos ? text : text.substr(end_of_number + 2);
}

nlohmann::json json_object(std::string_view line, const std::string& place) {
  if (line.size() > kLongestLine) throw DataError(place + ": is longer than 256 MiB, which is too much for one line");
  constexpr int kDeepest = 64;
  check_json_depth(line, kDeepest, place);
  check_json_size(line, kMostJsonValues, place);
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(place + ": is not JSON: " + json_fault(error));
  }
  if (!object.is_object()) {
    throw DataError(place + ": expected an object, {\"text\": …}, found " + object.type_name() +
                    (object.is_array() ? "; put each object on a line of its own, without brackets around them" : ""));
  }
  return object;
}

namespace {

/// "; write text_column: body": of the only text, or the longest.
std::string column_advice(const nlohmann::json& object) {
  std::string longest;
  size_t size = 0;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string() || value.get_ref<const std::string&>().size() < size) continue;
    longest = key;
    size = value.get_ref<const std::string&>().size();
  }
  if (longest.empty()) return suggestion("text", keys_of(object));
  return "; write text_column: " + longest + ", or another of its keys: " + join(keys_of(object));
}

/// The document of a line of JSON. Throws DataError.
std::string document_of(std::string_view line, const std::string& place, const std::string& column) {
  const nlohmann::json object = json_object(line, place);
  const auto found = object.find(column);
  if (found == object.end()) throw DataError(place + ": has no key '" + column + "'" + column_advice(object));
  if (!found->is_string()) {
    throw DataError(place + ":" + column + ": expected a string, found " + found->type_name());
  }
  return found->get<std::string>();
}

/// Calls `take` with the text of each row.
void for_each_row(const std::string& path, const std::string& column,
                  const std::function<void(std::string text, int64_t row)>& take) {
  for_each_arrow_row(path, {column}, [&](std::vector<Cell>& row, int64_t number) {
    take(text_in(row[0], path + ":" + std::to_string(number) + ":" + column), number);
  });
}

int64_t num_characters(std::string_view text) { return std::count_if(text.begin(), text.end(), begins_character); }

/// Where character `number` begins; the end of the text where there are no more.
size_t offset_of(std::string_view text, int64_t number) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && number-- == 0) return i;
  }
  return text.size();
}

int64_t train_share(int64_t total, const TextPart& part) {
  return static_cast<int64_t>(static_cast<double>(total) * (1 - part.val_fraction));
}

std::vector<std::string> part_by_documents(std::vector<std::string> documents, const TextPart& part) {
  const auto boundary = documents.begin() + train_share(static_cast<int64_t>(documents.size()), part);
  if (part.is_val) {
    documents.erase(documents.begin(), boundary);
  } else {
    documents.erase(boundary, documents.end());
  }
  return documents;
}

std::vector<std::string> part_by_characters(const std::vector<std::string>& documents, const TextPart& part) {
  int64_t total = 0;
  for (const std::string& document : documents) total += num_characters(document);
  int64_t left = train_share(total, part);  // characters that are still training data
  std::vector<std::string> chosen;
  for (const std::string& document : documents) {
    const int64_t count = num_characters(document);
    const size_t boundary = offset_of(document, left);
    left = std::max<int64_t>(left - count, 0);
    std::string own = part.is_val ? document.substr(boundary) : document.substr(0, boundary);
    if (!own.empty()) chosen.push_back(std::move(own));
  }
  return chosen;
}

}  // namespace

void for_each_text(const std::string& path, const std::string& text_column, std::optional<TextEncoding> encoding,
                   const std::function<void(std::string text, int64_t line)>& take) {
  if (is_arrow_file(path)) return for_each_row(path, text_column, take);
  TextLines lines(path, encoding);
  const bool has_objects = is_jsonl(path);
  for (std::string line; lines.next(line);) {
    if (!has_objects) {
      take(std::move(line), lines.number());
    } else if (line.find_first_not_of(" \t\r\n") != std::string::npos) {
      take(document_of(line, path + ":" + std::to_string(lines.number()), text_column), lines.number());
    }
  }
}

std::vector<std::string> read_documents(const TextFiles& files, const std::optional<TextPart>& part) {
  std::vector<std::string> documents;
  const auto lines = std::count_if(files.paths.begin(), files.paths.end(), has_documents);
  if (lines > 0 && lines < static_cast<std::ptrdiff_t>(files.paths.size())) {
    throw DataError(corpus_name(files) + ": some files are .jsonl or .parquet and others are not; use one kind");
  }
  for (const std::string& path : files.paths) {
    if (lines > 0) {
      for_each_text(path, files.text_column, files.encoding,
                    [&](std::string text, int64_t) { documents.push_back(std::move(text)); });
    } else {
      documents.push_back(read_text_file(path, files.encoding));
    }
  }
  if (part) {
    documents = lines > 0 ? part_by_documents(std::move(documents), *part) : part_by_characters(documents, *part);
  }
  if (documents.empty()) {
    throw DataError(corpus_name(files) + ": there is no text" + (part ? " in this part of it" : ""));
  }
  return documents;
}

std::string corpus_name(const TextFiles& files) {
  if (files.paths.size() == 1) return files.paths[0];
  return files.paths[0] + " and " + std::to_string(files.paths.size() - 1) + " more";
}

}  // namespace trainrun
