#include "runner/run/run_identity.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "registry/catalog.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Parameters = std::vector<Parameter>;

/// Keys that change no numbers, each with all below it, besides kLengths.
constexpr std::array kOthers = {"version",
                                "name",
                                "output_dir",
                                "checkpoint",
                                "logging",
                                "num_threads",
                                "model.checkpoint_activations",
                                "dataloader.num_workers",
                                "machine_rank",
                                "main_process_ip",
                                "main_process_port",
                                "distributed.timeout",
                                "distributed.pin_cores",
                                "sharding.prefetch"};

bool is_below(const std::string& path, const std::string& key) {
  return path == key || (path.starts_with(key) && (path[key.size()] == '.' || path[key.size()] == '['));
}

bool is_null(const Value& value) {
  return value.is_null() || (value.is_scalar() && value.scalar_type() == ScalarType::kNull);
}

/// A default as it would be written.
Value value_of(const json& written) {
  if (written.is_null()) return Value::null({});
  if (written.is_string()) return Value::scalar(written.get<std::string>(), /*quoted=*/true, {});
  if (written.is_number_float()) return Value::scalar(detail::number_text(written.get<double>()), false, {});
  if (written.is_array()) {
    std::vector<Value> items;
    for (const json& item : written) items.push_back(value_of(item));
    return Value::list(std::move(items), {});
  }
  if (!written.is_object()) return Value::scalar(written.dump(), /*quoted=*/false, {});
  std::vector<Value::Entry> entries;
  for (const auto& [key, item] : written.items()) entries.push_back({key, {}, value_of(item)});
  return Value::map(std::move(entries), {});
}

/// The parameters of the recipe's sections, by path.
const std::map<std::string, Parameters>& sections() {
  static const std::map<std::string, Parameters> all = {
      {"", Codec<Recipe>::fields().parameters()},
      {"model", Codec<ModelSection>::fields().parameters()},
      {"model.weights", Codec<WeightsSection>::fields().parameters()},
      {"dataset", Codec<DatasetSection>::fields().parameters()},
      {"dataloader", Codec<DataloaderSection>::fields().parameters()},
      {"training", Codec<TrainingSection>::fields().parameters()},
      {"evaluation", Codec<EvaluationSection>::fields().parameters()},
      {"checkpoint", Codec<CheckpointSection>::fields().parameters()},
      {"logging", Codec<LoggingSection>::fields().parameters()},
      {"distributed", Codec<DistributedSection>::fields().parameters()},
      {"sharding", Codec<ShardingSection>::fields().parameters()},
      {"grad_scaler", Codec<GradScalerSection>::fields().parameters()}};
  return all;
}

/// What stands for `key` where it is not written in a component: nothing where kinds of one name do not agree, or the
/// key is unknown or required.
std::optional<json> default_of_component(const std::string& type, const std::string& key) {
  static const Catalog catalog = builtins();
  std::optional<json> found;
  bool agree = true;
  const auto look = [&](const Parameters& parameters) {
    for (const Parameter& parameter : parameters) {
      if (parameter.name != key) continue;
      agree = agree && !parameter.required && (!found || *found == parameter.default_value);
      found = parameter.default_value;
    }
  };
  catalog.for_each([&]<class Kind>(const Registry<Kind>& registry) {
    const auto* entry = registry.find(type);
    if (!entry) return;
    look(entry->parameters);
    look(Codec<typename Kind::Common>::fields().parameters());
  });
  return agree ? found : std::nullopt;
}

/// The name of the component that a value is, or "".
std::string component_of(const Value& value) {
  const Value* type = value.find("type");
  return type && type->is_scalar() ? type->text() : "";
}

/// What `key` of `map`, a section at `path` or a component, is where it is not written.
Value default_of(const Value& map, const std::string& path, const std::string& key) {
  const auto section = sections().find(path);
  if (section != sections().end()) {
    for (const Parameter& parameter : section->second) {
      if (parameter.name == key && !parameter.required) return value_of(parameter.default_value);
    }
  }
  const std::string type = component_of(map);
  const auto found = type.empty() ? std::nullopt : default_of_component(type, key);
  return found ? value_of(*found) : Value::null({});
}

bool same_scalar(const Value& a, const Value& b, const std::string& path) {
  const ScalarType type = a.scalar_type();
  if (a.text() == b.text() && type == b.scalar_type()) return true;
  const auto x = parse_number(a.text());
  const auto y = parse_number(b.text());
  if (x && y && type != ScalarType::kString && b.scalar_type() != ScalarType::kString) return *x == *y;
  const bool words = type == ScalarType::kBool || b.scalar_type() == ScalarType::kBool;
  if (words && a.text().size() == b.text().size()) {
    return std::equal(a.text().begin(), a.text().end(), b.text().begin(),
                      [](unsigned char p, unsigned char q) { return std::tolower(p) == std::tolower(q); });
  }
  if (type != ScalarType::kString || b.scalar_type() != ScalarType::kString) return false;
  if (is_below(path, "plugins")) return fs::path(a.text()).filename() == fs::path(b.text()).filename();
  const bool may_be_path = is_below(path, "dataset") || is_below(path, "model.weights") || path == "checkpoint.resume";
  std::error_code not_there;
  return may_be_path && fs::equivalent(a.text(), b.text(), not_there);
}

/// " was 0.1 and is 0.2", or " differs".
std::string difference_text(const Value& before, const Value& now) {
  const auto text = [](const Value& value) -> std::string {
    if (is_null(value)) return "null";
    const bool is_plain = value.is_scalar() && value.scalar_type() != ScalarType::kString;
    return is_plain ? value.text() : "";
  };
  const std::string old_text = text(before);
  const std::string new_text = text(now);
  return old_text.empty() || new_text.empty() ? " differs" : " was " + old_text + " and is " + new_text;
}

/// The keys of how long a run goes on: it goes on longer or shorter, and what is scheduled by its length is stretched.
constexpr std::array kLengths = {"training.num_epochs", "training.max_steps", "training.max_time",
                                 "training.max_tokens"};

template <class Keys>
bool is_below_any(const std::string& path, const Keys& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return is_below(path, key); });
}

class Comparison {
 public:
  Comparison(bool evaluation_counts, Lists lists) : evaluation_counts_(evaluation_counts), lists_(lists) {}

  void compare(const Value& before, const Value& now, const std::string& path) {
    if (is_null(before) && is_null(now)) return;
    if (before.is_scalar() && now.is_scalar()) {
      if (!same_scalar(before, now, path)) report(before, now, path);
    } else if (before.is_map() && now.is_map()) {
      compare_maps(before, now, path);
    } else if (before.is_list() && now.is_list() && lists_ == Lists::kAligned && are_components(before, now)) {
      compare_aligned(before.items(), now.items(), path);
    } else if (before.is_list() && now.is_list() && before.items().size() == now.items().size()) {
      for (size_t i = 0; i < now.items().size(); ++i) {
        compare(before.items()[i], now.items()[i], path + "[" + std::to_string(i) + "]");
      }
    } else if (before.is_scalar() && !is_null(before) && !component_of(now).empty()) {
      compare_maps(Value::map({{"type", {}, before}}, {}), now, path);  // `ReLU` is short for {type: ReLU}
    } else if (now.is_scalar() && !is_null(now) && !component_of(before).empty()) {
      compare_maps(before, Value::map({{"type", {}, now}}, {}), path);
    } else if (is_empty(before) && is_empty(now)) {
    } else {
      report(before, now, path);
    }
  }

  std::vector<RecipeChange> take() { return std::move(changes_); }

 private:
  static bool is_empty(const Value& value) {
    return is_null(value) || (value.items().empty() && value.entries().empty() && !value.is_scalar());
  }
  /// Whether items of both lists can be told apart by their types and names.
  static bool are_components(const Value& before, const Value& now) {
    const auto is_one = [](const Value& item) { return !type_of(item).empty(); };
    const auto are_some = [&](const Value& list) {
      return std::all_of(list.items().begin(), list.items().end(), is_one) && list.items().size() <= kMostAligned;
    };
    return are_some(before) && are_some(now);
  }
  /// The type of a component, also of one that is written as its bare name.
  static std::string type_of(const Value& item) {
    const bool is_word = item.is_scalar() && item.scalar_type() == ScalarType::kString;
    return is_word ? item.text() : component_of(item);
  }
  static std::string name_of(const Value& item) {
    const Value* name = item.find("name");
    return name && name->is_scalar() && !is_null(*name) ? name->text() : "";
  }

  void compare_maps(const Value& before, const Value& now, const std::string& path) {
    std::set<std::string> keys;
    for (const Value* map : {&before, &now}) {
      for (const Value::Entry& entry : map->entries()) keys.insert(entry.key);
    }
    const auto value = [&](const Value& map, const Value& other, const std::string& key) {
      const Value* written = map.find(key);
      if (written) return *written;
      Value preset = default_of(map, path, key);
      const Value* there = other.find(key);  // a section that is left out has defaults of its own
      return is_null(preset) && there->is_map() && sections().contains(path.empty() ? key : path + "." + key)
                 ? Value::map({}, {})
                 : preset;
    };
    for (const std::string& key : keys) {
      compare(value(before, now, key), value(now, before, key), path.empty() ? key : path + "." + key);
    }
  }

  /// How sure it is that two items are the same one: by their names, else by what they are.
  static int likeness(const Value& before, const Value& now) {
    const std::string name = name_of(before);
    if (!name.empty() && name == name_of(now)) return 8;
    if (type_of(before) != type_of(now)) return 1;  // one in place of the other
    return same_meaning(before, now) ? 6 : 4;
  }

  /// The items of two lists that are the same ones, in the order that makes the most of them, are compared; the others
  /// came or went.
  void compare_aligned(const std::vector<Value>& before, const std::vector<Value>& now, const std::string& path) {
    const size_t rows = before.size(), columns = now.size();
    std::vector<std::vector<int>> best(rows + 1, std::vector<int>(columns + 1, 0));  // of what comes from here on
    for (size_t i = rows; i-- > 0;) {
      for (size_t j = columns; j-- > 0;) {
        const int paired = best[i + 1][j + 1] + likeness(before[i], now[j]);
        best[i][j] = std::max({paired, best[i + 1][j], best[i][j + 1]});
      }
    }
    const auto at = [&](size_t index) { return path + "[" + std::to_string(index) + "]"; };
    for (size_t i = 0, j = 0; i < rows || j < columns;) {
      const bool both = i < rows && j < columns;
      if (both && best[i][j] == best[i + 1][j + 1] + likeness(before[i], now[j])) {
        compare(before[i++], now[j], at(j));
        ++j;
      } else if (i < rows && (j == columns || best[i][j] == best[i + 1][j])) {
        report(before[i], Value::null({}), at(i), RecipeChange::Kind::kRemoved);
        ++i;
      } else {
        report(Value::null({}), now[j], at(j), RecipeChange::Kind::kAdded);
        ++j;
      }
    }
  }

  void report(const Value& before, const Value& now, const std::string& path,
              RecipeChange::Kind kind = RecipeChange::Kind::kChanged) {
    changes_.push_back({path, before, now, kind, effect_of(before, now, path)});
  }

  RecipeChange::Effect effect_of(const Value& before, const Value& now, const std::string& path) const {
    using Effect = RecipeChange::Effect;
    if (path == "checkpoint.resume") {  // where a run began
      const auto is_path = [](const Value& value) {
        return value.is_scalar() && value.text() != "auto" && value.text() != "no";
      };
      return is_path(before) || is_path(now) ? Effect::kNumbers : Effect::kNone;
    }
    if (is_below(path, "evaluation")) return evaluation_counts_ ? Effect::kNumbers : Effect::kNone;
    if (is_below_any(path, kLengths)) return Effect::kLength;
    return is_below_any(path, kOthers) ? Effect::kNone : Effect::kNumbers;
  }

  static constexpr size_t kMostAligned = 2000;

  bool evaluation_counts_;
  Lists lists_;
  std::vector<RecipeChange> changes_;
};

}  // namespace

std::string RecipeChange::to_string() const { return path + difference_text(before, now); }

std::vector<RecipeChange> changes_between(const Value& before, const Value& now, bool evaluation_counts, Lists lists) {
  Comparison comparison(evaluation_counts, lists);
  comparison.compare(before, now, "");
  return comparison.take();
}

RecipeDifference compare_recipes(const Value& before, const Value& now, bool evaluation_counts) {
  RecipeDifference difference;
  for (const RecipeChange& change : changes_between(before, now, evaluation_counts, Lists::kByPosition)) {
    (change.breaks_resume() ? difference.numbers : difference.others).push_back(change.to_string());
  }
  return difference;
}

}  // namespace trainrun
