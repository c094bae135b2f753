#include "runner/interop/accelerate_draft.h"

#include <algorithm>
#include <cctype>

#include "runner/recipe/yaml.h"

namespace trainrun::accelerate {

namespace {

/// Whether a value asks for nothing: it is off, left to others, or what the row calls neutral.
bool is_neutral(const AccelerateKey& row, const Value& value) {
  if (is_off(value)) return true;
  if (!value.is_scalar()) return false;
  if (value.text() == "auto" || upper(value.text()) == upper(row.neutral)) return true;
  const auto neutral = parse_number(row.neutral);
  return neutral && parse_number(value.text()) == neutral;  // 1.0 is 1
}

/// The keys of the section `path`, without it.
std::vector<std::string> keys_below(const std::vector<AccelerateKey>& rows, const std::string& path) {
  std::vector<std::string> keys;
  for (const AccelerateKey& row : rows) {
    const std::string key = row.key;
    const size_t begin = path.empty() ? 0 : path.size() + 1;
    const bool is_below = path.empty() || key.starts_with(path + ".");
    if (is_below && key.find('.', begin) == std::string::npos) keys.push_back(key.substr(begin));
  }
  return keys;
}

}  // namespace

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

std::vector<std::string> switched_on(const Value& value, const std::string& path) {
  if (is_off(value)) return {};
  if (!value.is_map()) return {path};
  std::vector<std::string> names;
  for (const Value::Entry& entry : value.entries()) {
    for (const std::string& name : switched_on(entry.value, joined_path(path, entry.key))) names.push_back(name);
  }
  return names.empty() ? std::vector<std::string>{path} : names;
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
  const std::string text = upper(value.text());
  if (text == "TRUE" || text == "FALSE") return set(key, text == "TRUE" ? "true" : "false", value);
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
  if (row.fate == KeyFate::kRefused && !is_neutral(row, value)) refuse(value, path, row.text);
  if (row.fate != KeyFate::kMeaningless) return;
  for (const std::string& name : switched_on(value, path)) meaningless_.push_back(name);
}

std::vector<std::string> Draft::walk_file(const Value& file, const std::vector<AccelerateKey>& rows) {
  std::vector<std::string> without_meaning;
  walk_file(file, "", rows, without_meaning);
  return without_meaning;
}

void Draft::walk_file(const Value& map, const std::string& path, const std::vector<AccelerateKey>& rows,
                      std::vector<std::string>& without_meaning) {
  for (const Value::Entry& entry : map.entries()) {
    const std::string whole = joined_path(path, entry.key);
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const AccelerateKey& known) { return whole == known.key; });
    if (row == rows.end()) {
      const std::string near = suggestion(entry.key, keys_below(rows, path));
      config_.problems.push_back(
          {entry.key_place, whole, "DeepSpeed's files have no such key" + (near.empty() ? "; leave it out" : near)});
    } else if (row->fate == KeyFate::kSection) {
      if (entry.value.is_map()) {
        if (!is_off(entry.value)) walk_file(entry.value, whole, rows, without_meaning);
      } else if (!is_off(entry.value)) {
        refuse(entry.value, whole, "expected a mapping, found " + entry.value.describe());
      }
    } else if (row->fate == KeyFate::kMeaningless) {
      for (const std::string& name : switched_on(entry.value, whole)) without_meaning.push_back(name);
    } else {
      take(*row, entry.value, whole);
    }
  }
}

AccelerateConfig Draft::finish(const Value& root) {
  if (!meaningless_.empty()) note(root, "", "without meaning here: " + join(meaningless_));
  return std::move(config_);
}

}  // namespace trainrun::accelerate
