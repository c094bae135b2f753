#include "runner/predict/command_advice.h"

#include <array>
#include <string_view>

namespace trainrun {
namespace {

/// Where the keys of the training data's file stand: within what wraps the data.
std::string path_of_data(const Recipe& recipe) {
  std::string path = recipe.dataset.train.path;
  const Value* data = &recipe.dataset.train.written;
  while (const Value* inner = data->find("dataset")) {
    path += ".dataset";
    data = inner;
  }
  return path;
}

/// "delimiter: ';'", as a message has it; `length`: of all of it, 0 where it is none.
struct Setting {
  std::string key;
  std::string value;
  size_t length = 0;
};

/// That with which `text` begins.
Setting setting_in(std::string_view text) {
  constexpr std::array<std::string_view, 4> kKeys = {"delimiter: ", "encoding: ", "decimal: ", "thousands: "};
  for (const std::string_view key : kKeys) {
    if (!text.starts_with(key)) continue;
    const std::string_view rest = text.substr(key.size());
    const bool is_quoted = rest.starts_with('\'') || rest.starts_with('"');
    const size_t end =
        is_quoted ? rest.find(rest[0], 1) : rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-");
    if (is_quoted && end == std::string_view::npos) return {};
    const std::string_view value = rest.substr(0, is_quoted ? end + 1 : end);
    if (value.empty()) return {};
    return {std::string(key.substr(0, key.size() - 2)), std::string(value), key.size() + value.size()};
  }
  return {};
}

/// "'dataset.train.delimiter=\";\"'" of a setting.
std::string as_argument(const std::string& path, const Setting& setting) {
  std::string value = setting.value;
  if (value.front() == '\'') value = '"' + value.substr(1, value.size() - 2) + '"';
  const std::string whole = path + "." + setting.key + "=" + value;
  return value.front() == '"' ? "'" + whole + "'" : whole;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

std::string for_command(const std::string& message, const Recipe& recipe) {
  constexpr std::string_view kWrite = "write ";
  constexpr std::string_view kAnd = " and ";
  const std::string path = path_of_data(recipe);
  std::string text;
  std::string_view rest = message;
  for (size_t at = rest.find(kWrite); at != std::string_view::npos; at = rest.find(kWrite)) {
    text += rest.substr(0, at);
    rest.remove_prefix(at + kWrite.size());
    const Setting first = setting_in(rest);
    if (first.length == 0) {
      text += kWrite;
      continue;
    }
    text += "add " + as_argument(path, first);
    rest.remove_prefix(first.length);
    const Setting second = rest.starts_with(kAnd) ? setting_in(rest.substr(kAnd.size())) : Setting();
    if (second.length > 0) {
      text += " and " + as_argument(path, second);
      rest.remove_prefix(kAnd.size() + second.length);
    }
    text += " to the command";
  }
  text += rest;
  replace_all(text, "the data set's broken: skip", "--broken skip");
  replace_all(text, "write broken: skip", "write --broken skip");
  return text;
}

}  // namespace trainrun
