#pragma once

#include <CLI/CLI.hpp>

#include <limits>
#include <string>

namespace trainrun {

// Checks of options that are numbers. CLI11's own say "Value 0 not in range 0.000000 to 1797…".

/// Refuses what `is_right` does not hold for, or is no Number: "expected `wanted`, found '0'".
template <class Number, class IsRight>
CLI::Validator number_check(const std::string& wanted, const std::string& shown, IsRight is_right) {
  return CLI::Validator(
      [wanted, is_right](std::string& text) {
        Number number{};
        const bool is_number = CLI::detail::lexical_cast(text, number);
        return is_number && is_right(number) ? std::string() : "expected " + wanted + ", found '" + text + "'";
      },
      shown);
}

/// A whole number from `least` on.
inline CLI::Validator whole_from(int64_t least) {
  return number_check<int64_t>("a whole number >= " + std::to_string(least), least > 0 ? "POSITIVE" : "NONNEGATIVE",
                               [least](int64_t number) { return number >= least; });
}
/// A whole number from `least` to `most`.
inline CLI::Validator whole_between(int64_t least, int64_t most) {
  const std::string shown = "INT in [" + std::to_string(least) + " - " + std::to_string(most) + "]";
  return number_check<int64_t>("a whole number from " + std::to_string(least) + " to " + std::to_string(most), shown,
                               [least, most](int64_t number) { return number >= least && number <= most; });
}
inline CLI::Validator above_zero() {
  return number_check<double>("a number > 0", "POSITIVE",
                              [](double number) { return number > 0 && number <= std::numeric_limits<double>::max(); });
}
inline CLI::Validator at_least_zero() {
  return number_check<double>("a number >= 0", "NONNEGATIVE", [](double number) {
    return number >= 0 && number <= std::numeric_limits<double>::max();
  });
}
/// A share that may be 0 or not.
inline CLI::Validator share(bool may_be_zero) {
  return number_check<double>(may_be_zero ? "a number from 0 to 1" : "a number > 0 and <= 1",
                              may_be_zero ? "FLOAT in [0 - 1]" : "FLOAT in (0 - 1]", [may_be_zero](double number) {
                                return (may_be_zero ? number >= 0 : number > 0) && number <= 1;
                              });
}

}  // namespace trainrun
