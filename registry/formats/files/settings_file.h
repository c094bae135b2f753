#pragma once

#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// Reads a file of settings as Hugging Face's libraries write them (config.json and its like): one JSON object, at most
/// 16 MiB, nested at most 64 deep. Throws DataError, which names the file.
nlohmann::json read_settings(const std::string& path);

/// A key of such a file that changes nothing here, whatever its value.
struct MeaninglessKey {
  std::string_view name;
  std::string_view why;
};
/// Whether `key` is among `keys`.
bool means_nothing(std::span<const MeaninglessKey> keys, std::string_view key);

/// What is said of keys of such a file that are neither used nor known to mean nothing.
std::string unknown_keys_text(const std::vector<std::string>& keys);

/// The value for a message, short: "a list", "a mapping", "\"gelu\"".
std::string shown_json(const nlohmann::json& value);

}  // namespace trainrun
