#include "runner/sweep/search_space.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "registry/language/codec.h"
#include "registry/language/error.h"
#include "registry/language/interpolation.h"
#include "registry/language/text_forms.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

constexpr int kGivenFigures = 6;                           // of a number that a trial is given
constexpr double kLargestInteger = 9'007'199'254'740'992;  // 2^53: what a double counts exactly

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// "1, [2, 3], 'a, b'" at the commas that are within no brackets and no quotes; nothing where those do not match.
std::optional<std::vector<std::string>> split_items(std::string_view text) {
  std::vector<std::string> items(1);
  std::string open;  // the brackets that are to come
  char quote = 0;
  for (const char letter : text) {
    if (quote != 0) {
      if (letter == quote) quote = 0;
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '[' || letter == '{' || letter == '(') {
      open += letter == '[' ? ']' : letter == '{' ? '}' : ')';
    } else if (letter == ']' || letter == '}' || letter == ')') {
      if (open.empty() || open.back() != letter) return std::nullopt;
      open.pop_back();
    } else if (letter == ',' && open.empty()) {
      items.emplace_back();
      continue;
    }
    items.back() += letter;
  }
  if (quote != 0 || !open.empty()) return std::nullopt;
  for (std::string& item : items) item = std::string(without_blanks(item));
  if (items.size() > 1 && items.back().empty()) items.pop_back();  // a comma at the end, as YAML has it
  return items;
}

/// Reads one argument after the other.
class SpaceReader {
 public:
  void read(const std::string& argument) {
    ++number_;
    text_ = argument;
    space_.arguments.push_back(argument);
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {  // what reads overrides says the same, of all of them
      report(0, "", "'" + argument + "' has no '='; write key=value");
      return;
    }
    key_ = std::string(without_blanks(text_.substr(0, equals)));
    const std::string_view value = without_blanks(text_.substr(equals + 1));
    value_offset_ = value.empty() ? equals + 1 : static_cast<size_t>(value.data() - text_.data());
    read_dimension(value);
  }

  SearchSpace take() {
    if (!problems_.empty()) throw RecipeError(problems_);
    return std::move(space_);
  }

 private:
  void report(size_t offset, const std::string& path, const std::string& message) {
    problems_.push_back({place_at(offset), path, message});
  }

  Place place_at(size_t offset) const {
    static const auto command_line = std::make_shared<const std::string>("command line");
    return {command_line, number_, static_cast<int>(count_code_points(text_.substr(0, offset))) + 1};
  }

  /// Where the value is several, adds a dimension, or reports what is wrong with it.
  void read_dimension(std::string_view value) {
    if (key_ == "output_dir") {
      return report(0, key_, "each trial has a folder of its own within that of the sweep; write --output FOLDER");
    }
    Dimension dimension;
    dimension.key = key_;
    dimension.place = place_at(value_offset_);
    dimension.argument = space_.arguments.size() - 1;
    bool is_good = false;
    const size_t dots = value.find("..");
    if (value.starts_with('[') && value.ends_with(']')) {
      if (is_one_value(value)) return;
      is_good = read_choices(value.substr(1, value.size() - 2), dimension);
    } else if (const auto kind = kind_of(value)) {
      dimension.kind = *kind;
      const size_t open = value.find('(');
      is_good = read_bounds(split_items(value.substr(open + 1, value.size() - open - 2)), dimension);
    } else if (dots != std::string_view::npos && parse_integer(value.substr(0, dots)) &&
               parse_integer(value.substr(dots + 2))) {
      dimension.kind = Dimension::Kind::kInteger;
      is_good =
          read_bounds(std::vector{std::string(value.substr(0, dots)), std::string(value.substr(dots + 2))}, dimension);
    } else {
      return;
    }
    if (!is_good) return;
    if (!keys_.insert(key_).second) {
      report(0, key_, "is given twice");
    } else {
      space_.dimensions.push_back(std::move(dimension));
    }
  }

  /// Whether a list is the value of all trials: `[x]`, and `[[a, b]]` for the list [a, b].
  bool is_one_value(std::string_view value) {
    const auto items = split_items(value.substr(1, value.size() - 2));
    if (!items || items->size() != 1) return false;
    if (items->at(0).starts_with('[')) space_.arguments.back() = key_ + "=" + items->at(0);
    return true;
  }

  static std::optional<Dimension::Kind> kind_of(std::string_view value) {
    using Kind = Dimension::Kind;
    if (!value.ends_with(')')) return std::nullopt;
    for (const auto& [name, kind] : {std::pair("log(", Kind::kLog), std::pair("uniform(", Kind::kUniform),
                                     std::pair("int(", Kind::kInteger), std::pair("logint(", Kind::kLogInteger)}) {
      if (value.starts_with(name)) return kind;
    }
    return std::nullopt;
  }

  bool read_choices(std::string_view inside, Dimension& dimension) {
    const auto items = split_items(inside);
    const auto fail = [&](const std::string& message) {
      report(value_offset_, key_, message);
      return false;
    };
    if (!items) return fail("brackets or quotes do not match; write [64, 128], or [[1, 2], [3, 4]]");
    if (std::ranges::count(*items, "") > 0) return fail("a value is missing between the commas");
    dimension.choices = *items;
    if (std::set<std::string>(items->begin(), items->end()).size() < items->size()) {
      return fail("a value is given twice");
    }
    return true;
  }

  bool read_bounds(const std::optional<std::vector<std::string>>& bounds, Dimension& dimension) {
    const auto fail = [&](const std::string& message) {
      report(value_offset_, key_, message);
      return false;
    };
    if (!bounds || bounds->size() != 2) return fail("expected two bounds, as in log(1e-5, 1e-3)");
    const auto low = parse_number(bounds->at(0)), high = parse_number(bounds->at(1));
    if (!low || !high) return fail("'" + bounds->at(low ? 1 : 0) + "' is not a number");
    dimension.low = *low;
    dimension.high = *high;
    if (*low > *high) return fail("the lower bound comes first");
    const bool are_integers = std::floor(*low) == *low && std::floor(*high) == *high &&
                              std::max(std::abs(*low), std::abs(*high)) <= kLargestInteger;
    if (dimension.is_integer() && !are_integers) return fail("the bounds are to be whole numbers");
    if (dimension.is_logarithmic() && *low <= 0) return fail("the bounds of a logarithmic range are to be above 0");
    if (!dimension.is_integer() && *low == *high) return fail("the bounds are equal; write one value");
    return true;
  }

  SearchSpace space_;
  std::vector<Problem> problems_;
  std::set<std::string> keys_;
  std::string_view text_;
  std::string key_;
  size_t value_offset_ = 0;
  int number_ = 0;
};

}  // namespace

std::optional<int64_t> Dimension::size() const {
  if (kind == Kind::kChoices) return static_cast<int64_t>(choices.size());
  if (is_integer()) return static_cast<int64_t>(high - low) + 1;
  return std::nullopt;
}

double Dimension::value_at(int64_t index) const { return (is_integer() ? low : 0) + static_cast<double>(index); }

double Dimension::settled(double value) const {
  if (kind == Kind::kChoices) return std::clamp(std::round(value), 0.0, static_cast<double>(choices.size() - 1));
  if (is_integer()) return std::clamp(std::round(value), low, high);
  return std::clamp(parse_number(in_figures(value, kGivenFigures)).value_or(value), low, high);
}

std::string Dimension::text_of(double value) const {
  if (kind == Kind::kChoices) return choices[static_cast<size_t>(value)];
  if (is_integer()) return std::to_string(static_cast<int64_t>(value));
  return detail::number_text(value);
}

std::string Dimension::words() const {
  if (kind == Kind::kChoices) return "[" + join(choices) + "]";
  const std::string bounds = detail::number_text(low) + ", " + detail::number_text(high) + ")";
  if (kind == Kind::kUniform) return "uniform(" + bounds;
  if (kind == Kind::kLog) return "log(" + bounds;
  if (kind == Kind::kLogInteger) return "logint(" + text_of(low) + ", " + text_of(high) + ")";
  return text_of(low) + ".." + text_of(high);
}

std::optional<int64_t> SearchSpace::grid_size() const {
  int64_t size = 1;
  for (const Dimension& dimension : dimensions) {
    const auto own = dimension.size();
    if (!own) return std::nullopt;
    size = *own > 0 && size > INT64_MAX / *own ? INT64_MAX : size * *own;
  }
  return size;
}

Point SearchSpace::grid_point(int64_t number) const {
  Point point(dimensions.size());
  for (size_t i = dimensions.size(); i-- > 0;) {
    const int64_t size = *dimensions[i].size();
    point[i] = dimensions[i].value_at(number % size);
    number /= size;
  }
  return point;
}

std::vector<std::string> SearchSpace::overrides(const Point& point) const {
  std::vector<std::string> all = arguments;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    all[dimensions[i].argument] = dimensions[i].key + "=" + dimensions[i].text_of(point[i]);
  }
  return all;
}

std::vector<Point> SearchSpace::points_to_check(int64_t most) const {
  std::vector<Point> points;
  if (const auto size = grid_size(); size && *size <= most) {
    for (int64_t i = 0; i < *size; ++i) points.push_back(grid_point(i));
    return points;
  }
  Point first;
  for (const Dimension& dimension : dimensions) {
    first.push_back(dimension.kind == Dimension::Kind::kChoices ? 0 : dimension.low);
  }
  points.push_back(first);
  for (size_t i = 0; i < dimensions.size(); ++i) {
    std::vector<double> values = {dimensions[i].high};
    if (dimensions[i].kind == Dimension::Kind::kChoices) {
      values.clear();
      for (size_t k = 1; k < dimensions[i].choices.size(); ++k) values.push_back(static_cast<double>(k));
    }
    for (const double value : values) {
      points.push_back(first);
      points.back()[i] = value;
    }
  }
  return points;
}

SearchSpace parse_search_space(const std::vector<std::string>& arguments) {
  SpaceReader reader;
  for (const std::string& argument : arguments) reader.read(argument);
  return reader.take();
}

}  // namespace trainrun
