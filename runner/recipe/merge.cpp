#include "runner/recipe/merge.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <unordered_map>
#include <utility>

#include "registry/language/utf8.h"
#include "runner/base/limits.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

constexpr std::string_view kBlank = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Moves places found in the value's own text to where that text stands in its argument.
class Shift {
 public:
  Shift(int line, int columns) : line_(line), columns_(columns) {}

  Place operator()(Place place) const {
    if (place.line == 1) place.column += columns_;
    place.line = line_;
    return place;
  }

  Value operator()(Value value) const {
    Place place = (*this)(value.place());
    for (Value& item : value.items()) item = (*this)(std::move(item));
    for (Value::Entry& entry : value.entries()) {
      entry.key_place = (*this)(std::move(entry.key_place));
      entry.value = (*this)(std::move(entry.value));
    }
    return with_place(std::move(value), std::move(place));
  }

 private:
  int line_;
  int columns_;
};

/// Adds the tags of what was parsed by itself to `tags`, at the places that its values get by `shift`.
void move_tags(const Value& value, const MergeTags& own, const Shift& shift, MergeTags& tags) {
  for (const MergeTag tag : {MergeTag::kReplace, MergeTag::kRemove}) {
    if (own.has(value, tag)) tags.add(shift(value.place()), tag);
  }
  for (const Value& item : value.items()) move_tags(item, own, shift, tags);
  for (const Value::Entry& entry : value.entries()) move_tags(entry.value, own, shift, tags);
}

/// Parses the text behind '='.
Value parse_value(std::string_view text, const Place& place, const std::string& path, std::vector<Problem>& problems,
                  MergeTags& tags) {
  const std::string_view content = trimmed(text);
  if (content.empty()) return Value::null(place);
  const auto report = [&](const std::string& message) { problems.push_back({place, path, message}); };
  if (content.front() == '#') {
    report("a '#' begins a comment; put the value in quotes that YAML sees: '\"" + std::string(content) + "\"'");
    return {};
  }
  std::vector<Problem> found;
  const Shift shift(place.line, place.column - 1);
  MergeTags own;
  Value value = parse_yaml(std::string(text), place.file, found, &own);
  move_tags(value, own, shift, tags);
  value = shift(std::move(value));
  for (Problem& problem : found) {
    problem.place = shift(std::move(problem.place));
    const bool joined = problem.path.empty() || problem.path.front() == '[';
    problem.path = path + (joined ? "" : ".") + problem.path;
    problems.push_back(std::move(problem));
  }
  const bool is_folded = value.is_scalar() && !value.quoted() && content.find_first_of("\n\r") != std::string::npos;
  if (is_folded) {
    report(
        "a line end in a plain scalar would become a space; leave it out, or, where a text may have line ends, put the "
        R"(text in double quotes, as in "a\nb")");
  }
  const bool block_style = (value.is_map() && content.front() != '{' && content.front() != '!') ||
                           (value.is_list() && content.front() != '[');
  if (block_style) report("write a mapping as {a: b}, a list as [a, b], and a text that looks like one in quotes");
  return value;
}

std::optional<Override> parse_override(const std::string& argument, int number, std::vector<Problem>& problems,
                                       MergeTags& tags) {
  static const auto command_line = std::make_shared<const std::string>("command line");
  const std::string_view text = argument;
  const auto place_at = [&](size_t offset) {
    return Place{command_line, number, static_cast<int>(count_code_points(text.substr(0, offset))) + 1};
  };
  const auto fail = [&](size_t offset, const std::string& message) {
    problems.push_back({place_at(offset), "", message});
    return std::nullopt;
  };
  const size_t valid = valid_utf8_length(text);
  if (valid < text.size()) return fail(valid, "not UTF-8");
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return fail(0, "'" + argument + "' has no '='; write key=value");
  const std::string_view key = trimmed(text.substr(0, equals));
  const size_t key_offset = key.empty() ? 0 : static_cast<size_t>(key.data() - text.data());

  const std::string_view value = trimmed(text.substr(equals + 1));
  if (value.starts_with('%')) {
    return fail(equals + 1, "a value that begins with % needs quotation marks, as YAML has it; write '" +
                                std::string(key) + "=\"" + std::string(value) + "\"'");
  }

  Override change;
  std::string error;
  auto path = parse_path(key, error);
  if (!path) return fail(key_offset, error);
  if (path->size() >= kMaxRecipeDepth)
    return fail(key_offset, "a path of more than " + std::to_string(kMaxRecipeDepth) + " steps");
  if (path->front().key == "base")
    return fail(key_offset, "base cannot be set on the command line; name another recipe");
  change.path = std::move(*path);
  for (const PathStep& step : change.path) change.step_places.push_back(place_at(key_offset + step.offset));
  const size_t problems_before = problems.size();
  change.value = parse_value(text.substr(equals + 1), place_at(equals + 1), std::string(key), problems, tags);
  if (problems.size() > problems_before) return std::nullopt;
  return change;
}

/// The bare name of a component: a word that begins with a capital, or any word that is an item of a list (a block's
/// name).
bool is_component_name(const Value& value, bool in_list) {
  if (!value.is_scalar() || value.scalar_type() != ScalarType::kString) return false;
  const std::string& text = value.text();
  const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_part) &&
         (std::isupper(static_cast<unsigned char>(text[0])) ||
          (in_list && std::isalpha(static_cast<unsigned char>(text[0]))));
}

/// Why step `i` leads nowhere from `node`; "" if it leads somewhere or what is missing can be created.
std::string dead_end(const Value& node, const Path& path, size_t i) {
  const PathStep& step = path[i];
  const std::string here = i == 0 ? "the recipe" : path_text(path, i);
  if (!step.is_index) {
    if (node.is_list()) return here + " is a list; name an item of it, as in " + here + "[0]." + step.key;
    if (node.is_scalar()) return here + " is " + node.describe() + " and has no keys";
    const auto is_index = [](const PathStep& later) { return later.is_index; };
    const auto first = path.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    if (!node.find(step.key) && std::any_of(first, path.end(), is_index)) {
      return path_text(path, i + 1) + " is not in the recipe, so it has no items";
    }
    return "";
  }
  if (!node.is_list()) return here + " is " + node.describe() + ", not a list";
  const size_t count = node.items().size();
  if (step.index < count) return "";
  return here + " has " + std::to_string(count) + (count == 1 ? " item" : " items") +
         ", counted from 0; there is no [" + std::to_string(step.index) + "]";
}

/// "there is no 'schedular' to remove; did you mean scheduler?"
std::string nothing_to_remove(const Value& map, const std::string& key) {
  std::vector<std::string> keys;
  for (const Value::Entry& entry : map.entries()) {
    if (entry.key != key) keys.push_back(entry.key);
  }
  return "there is no '" + key + "' to remove" + suggestion(key, keys);
}

void report_unremoved(Value& value, const MergeTags& tags, const std::string& path, std::vector<Problem>& problems) {
  for (size_t i = 0; i < value.items().size(); ++i) {
    report_unremoved(value.items()[i], tags, path + "[" + std::to_string(i) + "]", problems);
  }
  std::vector<std::string> unremoved;
  for (Value::Entry& entry : value.entries()) {
    const std::string here = path + (path.empty() ? "" : ".") + entry.key;
    if (tags.has(entry.value, MergeTag::kRemove)) {
      unremoved.push_back(entry.key);
      problems.push_back({entry.value.place(), here, nothing_to_remove(value, entry.key)});
    } else {
      report_unremoved(entry.value, tags, here, problems);
    }
  }
  for (const std::string& key : unremoved) value.erase(key);
}

}  // namespace

void merge_into(Value& target, Value over, const MergeTags& tags) {
  if (!target.is_map() || !over.is_map() || tags.has(over, MergeTag::kReplace)) {
    target = std::move(over);
    return;
  }
  std::unordered_map<std::string, size_t> positions;
  for (const Value::Entry& entry : target.entries()) positions.emplace(entry.key, positions.size());
  std::vector<std::string> removed;
  for (Value::Entry& entry : over.entries()) {
    if (tags.has(entry.value, MergeTag::kRemove) && positions.contains(entry.key)) {
      removed.push_back(entry.key);
      continue;
    }
    const auto [it, is_new] = positions.emplace(entry.key, target.entries().size());
    if (is_new) {
      target.entries().push_back(std::move(entry));
    } else {
      Value::Entry& old = target.entries()[it->second];
      old.key_place = std::move(entry.key_place);
      merge_into(old.value, std::move(entry.value), tags);
    }
  }
  for (const std::string& key : removed) target.erase(key);
  target = with_place(std::move(target), over.place());
}

void report_unremoved(Value& recipe, const MergeTags& tags, std::vector<Problem>& problems) {
  report_unremoved(recipe, tags, "", problems);
}

std::vector<Override> parse_overrides(const std::vector<std::string>& arguments, std::vector<Problem>& problems,
                                      MergeTags& tags) {
  std::vector<Override> changes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (auto change = parse_override(arguments[i], static_cast<int>(i) + 1, problems, tags))
      changes.push_back(std::move(*change));
  }
  return changes;
}

void apply_override(Value& recipe, const Override& change, const MergeTags& tags, std::vector<Problem>& problems) {
  Value* node = &recipe;
  const bool removes = tags.has(change.value, MergeTag::kRemove);
  for (size_t i = 0; i < change.path.size(); ++i) {
    const PathStep& step = change.path[i];
    const Place& place = change.step_places[i];
    if (!step.is_index && is_component_name(*node, i > 0 && change.path[i - 1].is_index)) {
      *node = Value::map({{"type", node->place(), *node}}, node->place());
    }
    const std::string error = dead_end(*node, change.path, i);
    if (!error.empty()) {
      problems.push_back({place, path_text(change.path), error});
      return;
    }
    const bool last = i + 1 == change.path.size();
    if (removes && last && step.is_index) {
      problems.push_back({place, path_text(change.path),
                          "!remove takes away a key of a mapping, not an item of a list; write the whole list"});
      return;
    }
    if (removes && !step.is_index && !node->find(step.key)) {
      problems.push_back({place, path_text(change.path, i + 1), nothing_to_remove(*node, step.key)});
      return;
    }
    if (removes && last) {
      node->erase(step.key);
      return;
    }
    if (step.is_index) {
      node = &node->items()[step.index];
      continue;
    }
    if (node->is_null()) *node = Value::map({}, place);
    Value* next = node->find(step.key);
    if (!next || last) {
      node->set(step.key, place, next ? *next : Value::null(place));
      next = node->find(step.key);
    }
    node = next;
  }
  merge_into(*node, change.value, tags);
  report_unremoved(*node, tags, path_text(change.path), problems);
}

}  // namespace trainrun
