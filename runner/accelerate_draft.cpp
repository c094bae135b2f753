#include "runner/accelerate_draft.h"

#include <algorithm>
#include <cctype>

#include "runner/yaml.h"

namespace trainrun::accelerate {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool is_off(const Value& value) {
  if (value.is_list()) return value.items().empty();
  if (const Value* enabled = value.find("enabled")) return is_off(*enabled);
  if (value.is_map()) return value.entries().empty();
  const std::string text = upper(value.text());
  const std::vector<std::string> words = {"", "NO", "FALSE", "OFF", "NONE", "NULL"};
  return value.is_null() || std::find(words.begin(), words.end(), text) != words.end();
}

bool is_on(const Value* value) { return value && !is_off(*value); }

std::string in_yaml(const std::string& text) {
  std::string yaml = to_yaml(Value::scalar(text, /*quoted=*/true, {}));
  yaml.pop_back();  // its newline
  return yaml;
}

std::string joined_path(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

const Value* Section::find(const std::string& key) const {
  if (!value) return nullptr;
  for (const Value::Entry& entry : value->entries()) {
    if (whole_key(entry.key) == key) return entry.value.is_null() ? nullptr : &entry.value;
  }
  return nullptr;
}

void Draft::set(const std::string& key, const std::string& yaml, const Value& from) {
  config_.settings.push_back({key, yaml, from.place()});
}

bool Draft::has(const std::string& key) const {
  return std::any_of(config_.settings.begin(), config_.settings.end(),
                     [&](const AccelerateConfig::Setting& setting) { return setting.key == key; });
}

void Draft::note(const Value& value, const std::string& path, const std::string& message) {
  config_.notes.push_back({value.place(), path, message});
}

void Draft::refuse(const Value& value, const std::string& path, const std::string& message) {
  config_.problems.push_back({value.place(), path, message});
}

void Draft::copy(const std::string& key, const Value& value, const std::string& path) {
  if (!value.is_scalar()) return refuse(value, path, "expected one value, found " + value.describe());
  set(key, parse_number(value.text()) ? value.text() : in_yaml(value.text()), value);
}

void Draft::walk(const Section& section, const std::vector<AccelerateKey>& rows) {
  std::vector<std::string> keys;
  for (const AccelerateKey& row : rows) keys.emplace_back(row.key);
  for (const Value::Entry& entry : section.value->entries()) {
    const std::string key = section.whole_key(entry.key);
    const std::string path = joined_path(section.path, entry.key);
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const AccelerateKey& known) { return key == known.key; });
    if (row == rows.end()) {
      config_.problems.push_back(
          {entry.key_place, path, "Accelerate's files have no such key" + suggestion(key, keys)});
    } else {
      take(*row, entry.value, path);
    }
  }
}

void Draft::take(const AccelerateKey& row, const Value& value, const std::string& path) {
  if (row.fate == KeyFate::kCopied && !value.is_null()) copy(row.text, value, path);
  if (row.fate == KeyFate::kRefused && !is_off(value)) refuse(value, path, row.text);
  if (row.fate == KeyFate::kMeaningless && !is_off(value)) meaningless_.push_back(path);
}

AccelerateConfig Draft::finish(const Value& root) {
  if (!meaningless_.empty()) note(root, "", "without meaning here: " + join(meaningless_));
  return std::move(config_);
}

}  // namespace trainrun::accelerate
