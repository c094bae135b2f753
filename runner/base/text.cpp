#include "runner/base/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <sstream>

#include "registry/language/utf8.h"

namespace trainrun {
namespace {

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return buffer.data();
}

/// Three figures and a prefix: "2.6 M", "18 k".
std::string with_prefix(double amount) {
  static constexpr std::array<const char*, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(amount) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    amount /= 1000;
    ++prefix;
  }
  const int decimals = prefix == 0 || std::abs(amount) >= 99.95 ? 0 : std::abs(amount) >= 9.995 ? 1 : 2;
  return formatted("%.*f %s", decimals, amount, kPrefixes[prefix]);
}

}  // namespace

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number < 0 ? -number : number);
  std::string text = number < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string decimal(double number, int decimals) {
  if (std::isnan(number)) return "nan";                // never "-nan"
  const double smallest = std::pow(10, 1 - decimals);  // two figures at least
  const bool hidden = number != 0 && std::abs(number) < smallest;
  if (!std::isfinite(number) || (!hidden && std::abs(number) < 1e6)) return formatted("%.*f", decimals, number);
  return scientific(number, std::max(1, decimals - 1));
}

std::string scientific(double number, int decimals) {
  return std::isnan(number) ? "nan" : formatted("%.*e", decimals, number);
}

std::string duration(double seconds) {
  if (seconds < 59.95) return formatted("%.1f s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 3600) return formatted("%lld min %02lld s", whole / 60, whole % 60);
  return formatted("%lld h %02lld min", whole / 3600, whole % 3600 / 60);
}

std::string short_duration(double seconds) {
  if (seconds >= 1 || seconds == 0) return duration(seconds);
  const bool is_milli = seconds >= 1e-3;
  return decimal(seconds * (is_milli ? 1e3 : 1e6), 1) + (is_milli ? " ms" : " us");
}

std::string bytes_text(double bytes) { return with_prefix(bytes) + "B"; }

std::string rate_text(double rate) {
  constexpr double kLeast = 1e-4;
  if (!std::isfinite(rate)) return decimal(rate);
  if (rate >= 99.95) return grouped(std::llround(rate));
  if (rate < kLeast) return rate == 0 ? "0" : scientific(rate, 2);
  int decimals = 1;
  double next_power = 9.995;  // of 10, below which there is one more decimal
  while (rate < next_power) {
    next_power /= 10;
    ++decimals;
  }
  return formatted("%.*f", decimals, rate);
}

std::string amount_text(double amount) {
  std::string text = with_prefix(amount);
  if (text.back() == ' ') text.pop_back();
  return text;
}

size_t text_width(const std::string& text) { return count_code_points(text); }

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && text_width(lines.back()) + 1 + text_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string TextTable::to_string(const std::string& indent, size_t width) const {
  constexpr size_t kNarrowest = 24;  // of a column that is wrapped
  const size_t last = columns_.size() - 1;
  std::vector<size_t> widths(columns_.size());
  for (size_t column = 0; column <= last; ++column) {
    for (const auto& row : rows_) {
      if (column < row.size()) widths[column] = std::max(widths[column], text_width(row[column]));
    }
  }
  const size_t before = indent.size() + std::accumulate(widths.begin(), widths.end() - 1, 2 * last);
  if (width > 0) widths[last] = std::min(widths[last], std::max(kNarrowest, width - std::min(width, before)));
  std::string text;
  const auto add_line = [&](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += indent + line + "\n";
  };
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_line(std::string(before - indent.size() + widths[last], '-'));
      continue;
    }
    std::vector<std::string> cells = row;
    std::vector<std::string> more;
    if (width > 0 && cells.size() > last) {
      more = wrapped(cells[last], widths[last]);
      cells[last] = more[0];
      more.erase(more.begin());
    }
    std::string line;
    for (size_t column = 0; column < cells.size(); ++column) {
      const std::string gap(widths[column] - std::min(widths[column], text_width(cells[column])), ' ');
      if (column > 0) line += "  ";
      line += columns_[column] == Align::kLeft ? cells[column] + gap : gap + cells[column];
    }
    add_line(line);
    for (const std::string& rest : more) add_line(std::string(before - indent.size(), ' ') + rest);
  }
  return text;
}

}  // namespace trainrun
