#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace trainrun {

/// What may be true of one parameter's value, written or by default. In a list of numbers it must be true of each.
class Condition {
 public:
  enum class Kind { kGiven, kMissing, kIs, kIsNot, kAbove, kAtLeast, kAtMost, kMatches };
  Condition(std::string parameter, Kind kind, nlohmann::json value = nullptr)
      : parameter_(std::move(parameter)), kind_(kind), value_(std::move(value)) {}

  const std::string& parameter() const { return parameter_; }
  /// `value`: the parameter's, as a recipe writes it.
  bool holds(const nlohmann::json& value) const;
  /// The JSON Schema of the values for which it holds.
  nlohmann::json schema() const;

 private:
  bool holds_for_number(double number) const;

  std::string parameter_;
  Kind kind_;
  nlohmann::json value_;
};

/// Begins a condition: `the("momentum").is_above(0)`.
class ConditionOf {
 public:
  explicit ConditionOf(std::string parameter) : parameter_(std::move(parameter)) {}

  /// Neither null nor an empty list.
  Condition is_given() const { return {parameter_, Condition::Kind::kGiven}; }
  Condition is_missing() const { return {parameter_, Condition::Kind::kMissing}; }
  Condition is(nlohmann::json value) const { return {parameter_, Condition::Kind::kIs, std::move(value)}; }
  Condition is_not(nlohmann::json value) const { return {parameter_, Condition::Kind::kIsNot, std::move(value)}; }
  Condition is_above(double limit) const { return {parameter_, Condition::Kind::kAbove, limit}; }
  Condition is_at_least(double limit) const { return {parameter_, Condition::Kind::kAtLeast, limit}; }
  Condition is_at_most(double limit) const { return {parameter_, Condition::Kind::kAtMost, limit}; }
  /// A string in which this regular expression (ECMAScript's) is found, or a value that is not a string.
  Condition matches(std::string pattern) const { return {parameter_, Condition::Kind::kMatches, std::move(pattern)}; }

 private:
  std::string parameter_;
};

inline ConditionOf the(std::string parameter) { return ConditionOf(std::move(parameter)); }

/// How parameters of one mapping must fit together: where `when` holds, so must all of `all` and one of `any`. It gives
/// both the verdict on a recipe and what an editor sees of it, the JSON Schema.
///
///   f.rule({.when = {the("nesterov").is(true)}, .all = {the("momentum").is_above(0)},
///           .at = "nesterov", .message = "needs a momentum above 0"});
struct Rule {
  std::vector<Condition> when = {};
  std::vector<Condition> all = {};
  std::vector<Condition> any = {};
  std::string at;       // the parameter at which a fault is reported
  std::string message;  // what is wrong; {NAME} stands for that parameter's value

  using ValueOf = std::function<nlohmann::json(const std::string& parameter)>;
  /// The message where the rule is broken, "" elsewhere.
  std::string fault(const ValueOf& value_of) const;
  /// Of the whole mapping. `default_of`: what a parameter is where it is not written.
  nlohmann::json schema(const ValueOf& default_of) const;
};

}  // namespace trainrun
