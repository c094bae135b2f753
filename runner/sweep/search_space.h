#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "registry/language/value.h"

namespace trainrun {

/// A key of the recipe whose value the trials of a sweep differ in.
struct Dimension {
  enum class Kind { kUniform, kLog, kInteger, kLogInteger, kChoices };
  std::string key;      // "optimizer.lr"
  Place place;          // of the values, on the command line
  size_t argument = 0;  // among those of the command line
  Kind kind = Kind::kChoices;
  double low = 0, high = 0;          // both included; not of kChoices
  std::vector<std::string> choices;  // of kChoices, as they were written

  bool is_logarithmic() const { return kind == Kind::kLog || kind == Kind::kLogInteger; }
  bool is_integer() const { return kind == Kind::kInteger || kind == Kind::kLogInteger; }
  /// How many values there are; nothing: any number between two.
  std::optional<int64_t> size() const;
  /// The value number `index` of finitely many.
  double value_at(int64_t index) const;
  /// The nearest value that a trial may have: whole numbers, within the bounds, six figures.
  double settled(double value) const;
  /// What the recipe says: "3.08742e-05". Of choices `value` is the index.
  std::string text_of(double value) const;
  /// "log(1e-05, 0.001)", "1..3", "[64, 128]"
  std::string words() const;
};

/// A value for each dimension; of choices the index.
using Point = std::vector<double>;

/// What the command line of a sweep says of the recipe.
struct SearchSpace {
  std::vector<Dimension> dimensions;
  std::vector<std::string> arguments;  // `key=value`, as they were written; those of no dimension are of all trials

  /// How many points there are; nothing where a dimension is not finite. At most INT64_MAX.
  std::optional<int64_t> grid_size() const;
  /// The last dimension varies fastest.
  Point grid_point(int64_t number) const;
  /// The `key=value` of a trial, each where it is on the command line of the sweep, so that errors have its place.
  std::vector<std::string> overrides(const Point& point) const;
  /// Points at which the recipe is checked before anything starts: all of them where there are at most `most`, else each
  /// value of each dimension (of a range its ends) once, the other dimensions at their first one.
  std::vector<Point> points_to_check(int64_t most) const;
};

/// Reads `key=log(a,b)`, `key=uniform(a,b)`, `key=int(a,b)`, `key=logint(a,b)`, `key=a..b` and `key=[a,b,c]`; any other
/// `key=value` is fixed. Throws RecipeError with the place of every fault.
SearchSpace parse_search_space(const std::vector<std::string>& arguments);

}  // namespace trainrun
