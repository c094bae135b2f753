#include "registry/formats/text/json_node.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/json_depth.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {

using nlohmann::json;

JsonNode::JsonNode(const std::string& file, const json& value, std::string path)
    : file_(&file), value_(&value), path_(std::move(path)) {}

void JsonNode::fail(const std::string& message) const {
  throw DataError(*file_ + ": " + (path_.empty() ? "" : path_ + ": ") + message);
}

void JsonNode::only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) fail("expected an object");
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail("unknown key \"" + key + "\"; known: " + join(std::vector<std::string>(keys.begin(), keys.end())));
    }
  }
}

JsonNode JsonNode::at(const std::string& key) const {
  if (!value_->is_object()) fail("expected an object with \"" + key + "\"");
  const auto found = value_->find(key);
  if (found == value_->end()) fail("\"" + key + "\" is missing");
  return {*file_, *found, path_.empty() ? key : path_ + "." + key};
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  if (!value_->is_object()) fail("expected an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return at(key);
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) fail("expected a list");
  std::vector<JsonNode> nodes;
  for (size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back(*file_, (*value_)[i], path_ + "[" + std::to_string(i) + "]");
  }
  return nodes;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  if (!value_->is_object()) fail("expected an object");
  std::vector<std::pair<std::string, JsonNode>> nodes;
  for (const auto& [key, unused] : value_->items()) nodes.emplace_back(key, at(key));
  return nodes;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) fail("expected a string");
  return value_->get<std::string>();
}

char32_t JsonNode::character() const {
  const std::string found = text();
  size_t at = 0;
  if (found.empty() || unicode::length(found[0]) != found.size()) fail("expected a single character");
  return unicode::next(found, at);
}

bool JsonNode::flag() const {
  if (!value_->is_boolean()) fail("expected true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t least, int64_t most) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value_->get<int64_t>() < least || value_->get<int64_t>() > most) {
    fail("expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value_->get<int64_t>();
}

double JsonNode::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail("expected a number");
  return value_->get<double>();
}

bool JsonNode::flag(const std::string& key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->flag() : otherwise;
}

std::optional<std::string> JsonNode::find_text(const std::string& key) const {
  const auto found = find(key);
  return found ? std::optional(found->text()) : std::nullopt;
}

json read_json_file(const std::string& path) {
  const std::string content = read_file(path, kMostTokenizerBytes);
  constexpr int kDeepest = 4 * kMostNesting;  // a sequence is an object and a list, and so is each of its parts
  check_json_depth(content, kDeepest, path);
  try {
    return json::parse(content);
  } catch (const json::exception& error) {
    throw DataError(path + ": not valid JSON: " + error.what());
  }
}

}  // namespace trainrun
