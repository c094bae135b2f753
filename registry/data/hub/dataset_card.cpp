#include "registry/data/hub/dataset_card.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "registry/formats/files/json_depth.h"
#include "registry/formats/files/settings_file.h"
#include "registry/formats/files/yaml_file.h"
#include "registry/language/error.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kFence = "---";

/// The lines between the first line and the next that are "---"; nothing where there are none.
std::optional<std::string> head_of(std::string_view text) {
  std::string head;
  bool is_first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_first && line != kFence) return std::nullopt;
    if (!is_first && line == kFence) return head;
    if (!is_first) head.append(line).push_back('\n');
    is_first = false;
  }
  return std::nullopt;
}

[[noreturn]] void fail(const std::string& place, const std::string& where, const std::string& expected,
                       const json& found) {
  throw DataError(place + ": " + where + ": expected " + expected + ", found " + shown_json(found));
}

std::string text_in_card(const json& value, const std::string& place, const std::string& where) {
  if (!value.is_string()) fail(place, where, "a text", value);
  return value.get<std::string>();
}

std::vector<std::string> texts_of(const json& value, const std::string& place, const std::string& where) {
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> texts;
  if (!value.is_array()) fail(place, where, "a path or a list of paths", value);
  for (const json& item : value) {
    if (!item.is_string()) fail(place, where, "a path", item);
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

/// What `data_files` says: a path, paths, a mapping of splits, or a list of {split, path}.
std::vector<NamedFiles> splits_of(const json& files, const std::string& place, const std::string& where) {
  std::vector<NamedFiles> splits;
  if (files.is_object()) {
    for (const auto& [split, paths] : files.items()) splits.push_back({split, texts_of(paths, place, where)});
    return splits;
  }
  const bool has_splits =
      files.is_array() && std::ranges::any_of(files, [](const json& one) { return one.is_object(); });
  if (!has_splits) return {{"train", texts_of(files, place, where)}};
  std::set<std::string> names;
  for (const json& item : files) {
    const bool is_whole = item.is_object() && item.contains("path") && item.value("split", json()).is_string();
    if (!is_whole) fail(place, where, "{split: …, path: …}", item);
    splits.push_back({item["split"], texts_of(item["path"], place, where)});
    if (!names.insert(splits.back().split).second) {
      throw DataError(place + ": " + where + ": the split " + splits.back().split + " occurs twice");
    }
  }
  return splits;
}

CardConfig config_of(const json& value, const std::string& place, size_t number) {
  const std::string where = "configs[" + std::to_string(number) + "]";
  if (!value.is_object()) fail(place, where, "a mapping", value);
  constexpr std::array kWithoutMeaning = {"version", "description", "dataset_size"};
  CardConfig config;
  for (const auto& [key, item] : value.items()) {
    const std::string here = where + "." + key;
    if (key == "config_name") {
      config.name = text_in_card(item, place, here);
    } else if (key == "data_files") {
      config.splits = splits_of(item, place, here);
    } else if (key == "data_dir") {
      config.folder = text_in_card(item, place, here);
      while (config.folder.ends_with('/')) config.folder.pop_back();
      if (config.folder.starts_with("./")) config.folder.erase(0, 2);
      if (config.folder == ".") config.folder.clear();
    } else if (key == "default") {
      config.is_default = item == "true" || item == "True" || item == "TRUE";
    } else if (key == "sep" || key == "delimiter") {
      config.delimiter = text_in_card(item, place, here);
    } else if (std::ranges::find(kWithoutMeaning, key) == kWithoutMeaning.end()) {
      config.unread.push_back(key);
    }
  }
  return config;
}

/// `names` of a class_label: a list, or a mapping of numbers.
std::vector<std::string> names_of(const json& names) {
  std::vector<std::string> found;
  if (names.is_array()) {
    for (const json& name : names) found.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  if (!names.is_object()) return found;
  constexpr size_t kMostDigits = 6;
  std::map<size_t, std::string> by_number;
  for (const auto& [number, name] : names.items()) {
    const bool is_number = !number.empty() && number.size() <= kMostDigits && std::ranges::all_of(number, is_digit);
    if (!is_number || !name.is_string()) return {};
    by_number[std::stoul(number)] = name.get<std::string>();
  }
  for (const auto& [number, name] : by_number) {
    if (number != found.size()) return {};  // one is missing
    found.push_back(name);
  }
  return found;
}

/// Of the features of a card: [{name: label, dtype: {class_label: {names: {'0': neg}}}}].
std::vector<std::string> names_in_features(const json& features, const std::string& column) {
  if (!features.is_array()) return {};
  for (const json& feature : features) {
    if (!feature.is_object() || feature.value("name", json()) != column) continue;
    const json type = feature.value("dtype", json());
    const json label = type.is_object() ? type.value("class_label", json()) : json();
    return label.is_object() ? names_of(label.value("names", json())) : std::vector<std::string>();
  }
  return {};
}

}  // namespace

std::vector<std::string> DatasetCard::class_names(const std::string& config, const std::string& column) const {
  const json all = info.is_array() ? info : json::array({info});
  for (const json& one : all) {
    const bool is_own = one.is_object() && (all.size() == 1 || one.value("config_name", json("default")) == config);
    if (is_own) return names_in_features(one.value("features", json()), column);
  }
  return {};
}

DatasetCard read_card(const std::string& text, const std::string& place) {
  constexpr int kFirstLine = 2;
  DatasetCard card;
  const auto head = head_of(text);
  const json content = head ? read_yaml(*head, place, kFirstLine) : json();
  if (content.is_null()) return card;
  if (!content.is_object()) fail(place, "the card's head", "a mapping", content);
  card.info = content.value("dataset_info", json());
  const json configs = content.value("configs", json());
  if (!configs.is_array() && !configs.is_null()) fail(place, "configs", "a list", configs);
  for (const json& config : configs) {
    card.configs.push_back(config_of(config, place, card.configs.size()));
    const auto same = [&](const CardConfig& other) { return other.name == card.configs.back().name; };
    if (std::ranges::count_if(card.configs, same) > 1) {
      throw DataError(place + ": configs: " + card.configs.back().name + " occurs twice");
    }
  }
  return card;
}

std::vector<std::string> class_names_in_metadata(const std::string& text, const std::string& column,
                                                 const std::string& place) {
  constexpr int kDeepest = 64;
  check_json_depth(text, kDeepest, place);
  json at = json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const std::string& key : {std::string("info"), std::string("features"), column}) {
    if (!at.is_object() || !at.contains(key)) return {};
    at = json(at[key]);
  }
  const bool has_names = at.is_object() && at.value("_type", json()) == "ClassLabel";
  return has_names ? names_of(at.value("names", json())) : std::vector<std::string>();
}

}  // namespace trainrun
