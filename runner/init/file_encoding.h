#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "registry/data/text_file.h"
#include "registry/language/error.h"

namespace trainrun {

/// The words of encodings, as recipes and --encoding write them.
std::vector<std::string> encoding_words();

/// A shell's command that writes, beside a file of text, what it holds from line `first_line` on, in UTF-8. `from`: what
/// iconv calls the file's encoding; "": it is UTF-8 already.
std::string conversion_command(const std::string& path, const std::string& from, int64_t first_line = 1);
/// As iconv calls it.
std::string iconv_name(TextEncoding encoding);

/// The UTF-16 that all of these files of text are in, by what they begin with; nothing: they are UTF-8, or cannot be read
/// at all. Throws DataError for one in another encoding, which cannot be told: what to add to the command, and how to
/// convert it.
std::optional<TextEncoding> encoding_told_by(const std::vector<std::string>& paths);
/// `message` of a file that was read in an encoding that the command names, with its advice as the command takes it.
std::string for_init(const std::string& message);

/// Has `look` read files of text: in the encoding that the command names, else as UTF-8 or what they tell. Throws
/// DataError as these do.
template <class Look>
auto look_in_encoding(const std::vector<std::string>& paths, const std::optional<TextEncoding>& named,
                      const Look& look) {
  try {
    return look(named);
  } catch (const DataError& error) {
    if (named) throw DataError(for_init(error.what()));
    const std::optional<TextEncoding> told = encoding_told_by(paths);
    if (!told) throw;
    return look(told);
  }
}

}  // namespace trainrun
