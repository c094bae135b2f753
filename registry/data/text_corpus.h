#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "registry/data/text_file.h"

namespace trainrun {

/// Files of text, plain or gzip: each line of a .jsonl file (also .jsonl.gz) is an object whose `text_column` is a
/// document, and so is each row of a .parquet, .arrow or .feather file; any other file is one document, as it stands.
struct TextFiles {
  std::vector<std::string> paths;
  std::string text_column = "text";
  std::optional<TextEncoding> encoding = {};
};

/// A part of a corpus, as nanoGPT splits one: `val_fraction` at its end is `val`.
struct TextPart {
  bool is_val = false;
  double val_fraction = 0.1;
};

/// All documents, in the order of the files. With a `part` only those: lines and rows are counted as documents, other
/// files by characters, so that the boundary may lie within one. Throws DataError naming file, line and column.
std::vector<std::string> read_documents(const TextFiles& files, const std::optional<TextPart>& part);

/// The whole content of a file, plain or gzip, as UTF-8. Throws DataError.
std::string read_text_file(const std::string& path, std::optional<TextEncoding> encoding = std::nullopt);
/// Calls `take` with each line of the file that is not empty, without its end, and its number from 1; a byte-order mark
/// is passed over. Throws DataError.
void for_each_line(const std::string& path, std::optional<TextEncoding> encoding,
                   const std::function<void(std::string_view line, int64_t number)>& take);
/// Calls `take` with each text of a file and the number of its line, from 1, a piece of the file in memory at a time: a
/// text is the `text_column` of each line of a .jsonl file, or row of a .parquet, .arrow or .feather file, and each line,
/// with its end, of any other. Throws DataError
/// with the line where one is longer than 256 MiB.
void for_each_text(const std::string& path, const std::string& text_column, std::optional<TextEncoding> encoding,
                   const std::function<void(std::string text, int64_t line)>& take);
/// Whether each line of the file is an object, as its name says: .jsonl or .json, perhaps with .gz.
bool is_jsonl(const std::string& path);
/// The keys of an object.
std::vector<std::string> keys_of(const nlohmann::json& object);
/// Whether a file has many documents, in lines or rows, as its name says.
bool has_documents(const std::string& path);
/// What nlohmann's parser found wrong, without the number that it gives its errors.
std::string json_fault(const std::exception& error);
constexpr size_t kMostJsonValues = size_t{1} << 22;  // of a line, so that none fills the memory
/// The object that is a line of a .jsonl file. Throws DataError, which begins with `place`.
nlohmann::json json_object(std::string_view line, const std::string& place);

/// "input.txt", or "input.txt and 2 more"
std::string corpus_name(const TextFiles& files);

}  // namespace trainrun
