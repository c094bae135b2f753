#include "runner/recipe/interpolate.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "registry/language/expression.h"
#include "registry/language/interpolation.h"
#include "registry/language/utf8.h"
#include "runner/base/limits.h"
#include "runner/base/secrets.h"
#include "runner/recipe/recipe_position.h"
#include "runner/recipe/source_form.h"

namespace trainrun {
namespace {

constexpr size_t kMaxChain = 32;                   // references that lead to references
constexpr size_t kMaxNestedFallbacks = 8;          // defaults within defaults
constexpr size_t kMaxInterpolationProblems = 200;  // after which more would help nobody
constexpr size_t kMaxSuggestions = 20;
constexpr size_t kMaxCandidates = 1000;

/// Ends the interpolation: nothing more can be said about the recipe.
class Stopped : public Error {
 public:
  explicit Stopped(Problem problem) : Error(problem.message), problem_(std::move(problem)) {}
  const Problem& problem() const { return problem_; }

 private:
  Problem problem_;
};

class Interpolator {
 public:
  enum class Secrets { kPutIn, kKeep };
  Interpolator(const Value& root, std::vector<Problem>& problems, Secrets secrets)
      : root_(root), problems_(problems), keeps_secrets_(secrets == Secrets::kKeep) {}

  Value run() { return rebuild(root_, Position()); }

 private:
  /// A value of the recipe as it was before interpolation, and the steps to it.
  struct Target {
    const Value* node = nullptr;
    std::vector<Position> positions;  // each the parent of the next
    const Position& position() const { return positions.back(); }
  };
  struct Open {
    const Value* node;
    std::string path;
  };

  /// Whether texts at `position` are to be as a recipe writes them: `$${` for `${`.
  bool is_source_form(const Position& position) const { return keeps_secrets_ || position.block; }

  void report(const Value& scalar, const Position& position, const std::string& message) {
    ++failures_;
    Problem problem{scalar.place(), position.path(), message};
    if (++num_problems_ > kMaxInterpolationProblems) throw Stopped(std::move(problem));
    problems_.push_back(std::move(problem));
  }

  Value rebuild(const Value& node, const Position& position) {
    if (node.is_scalar()) return evaluate(node, position);
    if (node.is_list()) {
      std::vector<Value> items;
      items.reserve(node.items().size());
      for (size_t i = 0; i < node.items().size(); ++i) items.push_back(rebuild(node.items()[i], position.item(i)));
      return Value::list(std::move(items), node.place());
    }
    if (!node.is_map()) return node;
    std::vector<Value::Entry> entries;
    entries.reserve(node.entries().size());
    for (const Value::Entry& entry : node.entries()) {
      entries.push_back({entry.key, entry.key_place, rebuild(entry.value, position.child(entry.value, entry.key))});
    }
    return Value::map(std::move(entries), node.place());
  }

  /// The value that a scalar stands for; the scalar itself where that cannot be said.
  Value evaluate(const Value& scalar, const Position& position) {
    if (scalar.text().find("${") == std::string::npos) return scalar;
    const std::vector<TextPiece> pieces = parse_pieces(scalar.text());
    if (pieces.size() > 1 || pieces[0].kind == TextPiece::Kind::kLiteral) return concatenate(pieces, scalar, position);
    auto value = resolve(pieces[0], scalar, position);
    if (!value) return scalar;
    const bool null = value->is_scalar() && value->scalar_type() == ScalarType::kNull;
    return null ? Value::null(scalar.place()) : with_place(std::move(*value), scalar.place());
  }

  Value concatenate(const std::vector<TextPiece>& pieces, const Value& scalar, const Position& position) {
    const bool source_form = is_source_form(position);
    TextBuilder builder(source_form);
    const size_t failures_before = failures_;
    for (const TextPiece& piece : pieces) {
      if (piece.kind == TextPiece::Kind::kLiteral) {
        builder.add_literal(piece.text);
        continue;
      }
      const auto value = resolve(piece, scalar, position);
      if (!value) continue;
      if (!value->is_scalar()) {
        report(scalar, position, piece.source + " is " + value->describe() + " and cannot be part of a string");
      } else if (source_form) {
        builder.add_source_form(value->text());
      } else {
        builder.add_literal(value->text());
      }
    }
    if (builder.clash()) report(scalar, position, "a '$' comes to stand right before the ${…} of a parameter");
    if (failures_ > failures_before) return scalar;
    std::string text = builder.take();
    count(weight_of(text), scalar, position);
    return Value::scalar(std::move(text), /*quoted=*/true, scalar.place());
  }

  /// The value of one `${…}`, in source form within a block. Nothing: it has none, and a problem says so.
  std::optional<Value> resolve(const TextPiece& piece, const Value& scalar, const Position& position) {
    switch (piece.kind) {
      case TextPiece::Kind::kReference:
        if (position.has_parameter(piece.text)) return Value::scalar(piece.source, scalar.quoted(), scalar.place());
        return refer(piece, scalar, position);
      case TextPiece::Kind::kExpression:
        return evaluate_expression(piece, scalar, position);
      case TextPiece::Kind::kEnvironment:
        return read_environment(piece, scalar, position);
      case TextPiece::Kind::kMalformed:
      case TextPiece::Kind::kLiteral:
        break;
    }
    report(scalar, position, (piece.source.ends_with('}') ? piece.source + ": " : "") + piece.text);
    return std::nullopt;
  }

  /// The value of an expression; within a block, where it holds parameters, the expression with all other names
  /// replaced by their values.
  std::optional<Value> evaluate_expression(const TextPiece& piece, const Value& scalar, const Position& position) {
    const Expression expression(piece.text);
    std::map<std::string, ExpressionValue> values;
    bool has_parameters = false;
    try {
      for (const std::string& name : expression.names()) {
        if (position.has_parameter(name)) {
          has_parameters = true;
        } else if (!values.contains(name)) {
          const auto value = refer({TextPiece::Kind::kReference, name, {}, piece.source}, scalar, position);
          if (!value) return std::nullopt;
          values.emplace(name, operand_of(*value, name));
        }
      }
      if (!has_parameters) {
        return value_of(expression.evaluate([&](const std::string& name) { return values.at(name); }), scalar.place());
      }
      const auto known = [&](const std::string& name) {
        const auto it = values.find(name);
        return it == values.end() ? nullptr : &it->second;
      };
      return Value::scalar("${" + expression.with_values(known) + "}", scalar.quoted(), scalar.place());
    } catch (const ExpressionError& error) {
      report(scalar, position, piece.source + ": " + error.what());
      return std::nullopt;
    }
  }

  std::optional<Value> read_environment(const TextPiece& piece, const Value& scalar, const Position& position) {
    const char* found = std::getenv(piece.text.c_str());
    const std::string text = found ? found : "";
    if (text.empty() && piece.fallback) {
      if (num_fallbacks_ >= kMaxNestedFallbacks) {
        report(scalar, position, "more than " + std::to_string(kMaxNestedFallbacks) + " defaults within each other");
        return std::nullopt;
      }
      const size_t failures_before = failures_;
      ++num_fallbacks_;
      Value value = evaluate(Value::scalar(*piece.fallback, /*quoted=*/false, scalar.place()), position);
      --num_fallbacks_;
      return failures_ == failures_before ? std::optional<Value>(std::move(value)) : std::nullopt;
    }
    if (!found) {
      report(scalar, position,
             "the environment variable " + piece.text + " is not set; set it, or write ${env:" + piece.text +
                 ":-default}");
      return std::nullopt;
    }
    if (valid_utf8_length(text) < text.size()) {
      report(scalar, position, "the environment variable " + piece.text + " is not UTF-8");
      return std::nullopt;
    }
    if (is_named_as_secret(piece.text)) hide_secret(text, piece.source);
    if (keeps_secrets_ && may_be_secret(piece.text, text, position.section())) {
      return Value::scalar(piece.source, /*quoted=*/false, scalar.place());
    }
    const Value value = Value::scalar(text, /*quoted=*/false, scalar.place());
    count(weight_of(value), scalar, position);
    return is_source_form(position) ? escaped(value) : value;
  }

  std::optional<Value> refer(const TextPiece& piece, const Value& scalar, const Position& position) {
    Target target;
    const std::string problem = locate(piece.text, position, 0, target);
    if (!problem.empty()) {
      report(scalar, position, piece.source + ": " + problem);
      return std::nullopt;
    }
    const Position& there = target.position();
    const bool holds_blocks =
        there.region == Region::kBlocks || (there.region == Region::kModel && target.node->find("blocks"));
    if (holds_blocks) {
      report(scalar, position, piece.source + " holds blocks and cannot be copied; refer to what is inside it");
      return std::nullopt;
    }
    const Value* resolved = resolve_target(target, scalar, position);
    if (!resolved) return std::nullopt;
    count(weight_of(*resolved), scalar, position);
    if (position.depth + depth_of(*resolved) > kMaxRecipeDepth + 1) {
      report(scalar, position,
             "nested deeper than " + std::to_string(kMaxRecipeDepth) + " levels, with references replaced");
      return std::nullopt;
    }
    if (there.block == position.block) return *resolved;
    if (!there.block) return keeps_secrets_ ? *resolved : escaped(*resolved);
    const std::string parameter = first_reference(*resolved);
    if (!parameter.empty()) {
      report(scalar, position,
             piece.source + " holds the block's parameter " + parameter + ", which has no value here");
      return std::nullopt;
    }
    Value value = substitute(*resolved, {});
    return is_source_form(position) ? escaped(std::move(value)) : value;
  }

  /// The target's value, interpolated; null if that failed. Computed once per target.
  const Value* resolve_target(const Target& target, const Value& scalar, const Position& position) {
    const auto known = resolved_.find(target.node);
    if (known != resolved_.end()) {
      if (!known->second) ++failures_;
      return known->second ? &*known->second : nullptr;
    }
    const auto is_target = [&](const Open& open) { return open.node == target.node; };
    const auto start = std::find_if(open_.begin(), open_.end(), is_target);
    if (start != open_.end()) {
      std::string chain;
      for (auto it = start; it != open_.end(); ++it) chain += it->path + " -> ";
      report(scalar, position, "refers to itself: " + chain + target.position().path());
      return nullptr;
    }
    if (open_.size() >= kMaxChain) {
      report(scalar, position, "more than " + std::to_string(kMaxChain) + " references that lead to each other");
      return nullptr;
    }
    open_.push_back({target.node, target.position().path()});
    const size_t failures_before = failures_;
    Value value = rebuild(*target.node, target.position());
    open_.pop_back();
    auto& slot = resolved_[target.node];
    if (failures_ == failures_before) slot = std::move(value);
    return slot ? &*slot : nullptr;
  }

  /// Walks to `name`, through references on the way. Returns what is wrong, or "".
  std::string locate(const std::string& name, const Position& from, size_t num_followed, Target& target) {
    if (num_followed > kMaxChain || ++num_located_ > kMaxRecipeValues)
      return "a reference that leads to itself, or too many";
    std::string error;
    const Path path = parse_path(name, error).value_or(Path());  // parse_pieces has checked it
    target.node = &root_;
    target.positions = {Position()};
    for (size_t i = 0; i < path.size(); ++i) {
      if (i > 0 && target.node->is_scalar()) {
        const std::vector<TextPiece> pieces = parse_pieces(target.node->text());
        const bool follows = pieces.size() == 1 && pieces[0].kind == TextPiece::Kind::kReference &&
                             !target.position().has_parameter(pieces[0].text);
        if (follows) {
          Target followed;
          error = locate(pieces[0].text, target.position(), num_followed + 1, followed);
          if (!error.empty()) return path_text(path, i) + " is " + pieces[0].source + ": " + error;
          target = std::move(followed);
        }
      }
      if (!step(*target.node, path[i], target)) return unknown(*target.node, path, i, from);
    }
    return "";
  }

  bool step(const Value& node, const PathStep& where, Target& target) {
    if (where.is_index) {
      if (!node.is_list() || where.index >= node.items().size()) return false;
      target.node = &node.items()[where.index];
      target.positions.push_back(target.position().item(where.index));
    } else {
      const Value::Entry* entry = find_entry(node, where.key);
      if (!entry) return false;
      target.node = &entry->value;
      target.positions.push_back(target.position().child(entry->value, entry->key));
    }
    // The vector may have moved: point every position to the one before it.
    for (size_t i = 1; i < target.positions.size(); ++i) target.positions[i].parent = &target.positions[i - 1];
    return true;
  }

  /// Value::find, but not linear in the size of large maps.
  const Value::Entry* find_entry(const Value& map, const std::string& key) {
    auto& index = indices_[&map];
    if (index.empty()) {
      for (const Value::Entry& entry : map.entries()) index.emplace(entry.key, &entry);
    }
    const auto it = index.find(key);
    return it == index.end() ? nullptr : it->second;
  }

  std::string unknown(const Value& node, const Path& path, size_t i, const Position& from) {
    const std::string here = i == 0 ? "the recipe" : path_text(path, i);
    if (path[i].is_index) {
      if (!node.is_list()) return here + " is " + node.describe() + ", not a list";
      const size_t count = node.items().size();
      return here + " has " + std::to_string(count) + (count == 1 ? " item" : " items") + ", counted from 0";
    }
    if (!node.is_map()) return here + " is " + node.describe() + " and has no keys";
    return "no value named " + path_text(path) + suggest(node, path, i, from);
  }

  std::string suggest(const Value& node, const Path& path, size_t i, const Position& from) {
    if (++num_suggestions_ > kMaxSuggestions) return "";
    if (const size_t minus = path[0].key.find('-'); path.size() == 1 && minus != std::string::npos) {
      const std::string first = path[0].key.substr(0, minus);
      if (root_.find(first) || from.has_parameter(first)) return "; to subtract, put spaces around the '-'";
    }
    std::vector<std::string> keys;
    for (const Value::Entry& entry : node.entries()) {
      if (keys.size() < kMaxCandidates) keys.push_back(entry.key);
    }
    Path corrected = path;
    corrected[i].key = nearest(path[i].key, keys);
    if (!corrected[i].key.empty()) return "; did you mean " + path_text(corrected) + "?";
    if (path.size() > 1) return "";
    if (const Value* parameters = from.block ? from.block->find("parameters") : nullptr) {
      keys.clear();
      for (const Value::Entry& entry : parameters->entries()) keys.push_back(entry.key);
      const std::string parameter = nearest(path[0].key, keys);
      if (!parameter.empty()) return "; did you mean the parameter " + parameter + "?";
    }
    const std::string elsewhere = find_key(root_, path[0].key, Position());
    if (!elsewhere.empty()) return "; did you mean " + elsewhere + "?";
    const bool in_environment = std::getenv(path[0].key.c_str()) != nullptr;
    return in_environment ? "; did you mean ${env:" + path[0].key + "}?" : "";
  }

  void count(size_t weight, const Value& scalar, const Position& position) {
    total_weight_ += weight;
    if (total_weight_ <= kMaxRecipeValues) return;
    throw Stopped({scalar.place(), position.path(),
                   "more than " + std::to_string(kMaxRecipeValues) + " values, with references replaced"});
  }

  const Value& root_;
  std::vector<Problem>& problems_;
  bool keeps_secrets_;
  std::unordered_map<const Value*, std::optional<Value>> resolved_;
  std::unordered_map<const Value*, std::unordered_map<std::string_view, const Value::Entry*>> indices_;
  std::vector<Open> open_;  // the targets being resolved, outermost first
  size_t failures_ = 0;
  size_t num_problems_ = 0;
  size_t num_suggestions_ = 0;
  size_t num_fallbacks_ = 0;
  size_t num_located_ = 0;
  size_t total_weight_ = 0;
};

}  // namespace

Value interpolate(const Value& recipe, std::vector<Problem>& problems) {
  try {
    return Interpolator(recipe, problems, Interpolator::Secrets::kPutIn).run();
  } catch (const Stopped& stopped) {
    problems.push_back(stopped.problem());
    return recipe;
  }
}

Value interpolate_but_secrets(const Value& recipe) {
  std::vector<Problem> known;  // interpolate reports them
  try {
    return Interpolator(recipe, known, Interpolator::Secrets::kKeep).run();
  } catch (const Stopped&) {
    return Value();
  }
}

}  // namespace trainrun
