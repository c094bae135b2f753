#include "registry/data/tables/dates.h"

#include <time.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

namespace trainrun {
namespace {

constexpr double kSecondsADay = 86400;

std::optional<double> days_of(int year, int month, int day) {
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count());
}

/// Takes what it reads from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}
  bool done() const { return rest_.empty(); }
  bool take(std::string_view characters) {
    if (rest_.empty() || characters.find(rest_[0]) == std::string_view::npos) return false;
    taken_ = rest_[0];
    rest_.remove_prefix(1);
    return true;
  }
  char taken() const { return taken_; }
  /// A number of exactly `digits` digits from 0 to `most`.
  std::optional<int> number(size_t digits, int most) {
    int value = 0;
    if (rest_.size() < digits) return std::nullopt;
    for (const char digit : rest_.substr(0, digits)) {
      if (digit < '0' || digit > '9') return std::nullopt;
      value = 10 * value + (digit - '0');
    }
    if (value > most) return std::nullopt;
    rest_.remove_prefix(digits);
    return value;
  }
  /// The digits behind a decimal point.
  double fraction() {
    double value = 0;
    double scale = 0.1;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; scale /= 10) {
      value += scale * (rest_[0] - '0');
      rest_.remove_prefix(1);
    }
    return value;
  }

 private:
  std::string_view rest_;
  char taken_ = 0;
};

/// "HH:MM[:SS[.f]][Z|±HH[:MM]]" as seconds since midnight UTC.
std::optional<double> seconds_of(Scanner& text) {
  const auto hour = text.number(2, 23);
  if (!hour || !text.take(":")) return std::nullopt;
  const auto minute = text.number(2, 59);
  if (!minute) return std::nullopt;
  double seconds = *hour * 3600.0 + *minute * 60.0;
  if (text.take(":")) {
    const auto second = text.number(2, 60);  // 60: a leap second
    if (!second) return std::nullopt;
    seconds += *second;
    if (text.take(".,")) seconds += text.fraction();
  }
  if (text.take("Zz")) return seconds;
  if (!text.take("+-")) return seconds;
  const double sign = text.taken() == '+' ? 1 : -1;
  const auto hours = text.number(2, 14);
  if (!hours) return std::nullopt;
  text.take(":");
  const auto minutes = text.done() ? std::optional(0) : text.number(2, 59);
  if (!minutes) return std::nullopt;
  return seconds - sign * (*hours * 3600.0 + *minutes * 60.0);
}

std::optional<double> parse_iso(std::string_view text) {
  Scanner scanner(text);
  const auto year = scanner.number(4, 9999);
  if (!year || !scanner.take("-")) return std::nullopt;
  const auto month = scanner.number(2, 12);
  if (!month || !scanner.take("-")) return std::nullopt;
  const auto day = scanner.number(2, 31);
  if (!day) return std::nullopt;
  const auto days = days_of(*year, *month, *day);
  if (!days || scanner.done()) return days;
  if (!scanner.take("T t")) return std::nullopt;
  const auto seconds = seconds_of(scanner);
  if (!seconds || !scanner.done()) return std::nullopt;
  return *days + *seconds / kSecondsADay;
}

}  // namespace

std::optional<double> parse_date(std::string_view text, const std::string& format) {
  if (format.empty()) return parse_iso(text);
  const std::string whole(text);
  std::tm parts{};
  parts.tm_mday = 1;
  const char* end = strptime(whole.c_str(), format.c_str(), &parts);
  if (!end || *end != '\0') return std::nullopt;
  constexpr int kFirstTmYear = 1900;
  constexpr int kLeastYear = 1000;  // "21" is no %Y, as in Python; strptime takes it for the year 21
  if (parts.tm_year + kFirstTmYear < kLeastYear) return std::nullopt;
  const auto days = days_of(parts.tm_year + kFirstTmYear, parts.tm_mon + 1, parts.tm_mday);
  if (!days) return std::nullopt;
  return *days + (parts.tm_hour * 3600.0 + parts.tm_min * 60.0 + parts.tm_sec) / kSecondsADay;
}

std::optional<double> parse_any_date(std::string_view text, const std::string& format) {
  const std::optional<double> days = parse_date(text, format);
  const bool begins_with_year = format.starts_with("%Y") || format.starts_with("%G");
  return days || format.empty() || begins_with_year ? days : parse_iso(text);
}

std::string date_text(double days, const std::string& format, const std::string& like) {
  constexpr size_t kDate = 10;     // "2024-05-31"
  constexpr size_t kMinutes = 16;  // "2024-05-31T18:30"
  constexpr size_t kSeconds = 19;
  std::string own = format;
  std::string zone;
  if (format.empty()) {
    own = "%Y-%m-%d";
    if (like.size() > kDate) own += std::string(1, like[kDate]) + "%H:%M";
    const bool has_seconds = like.size() >= kSeconds && like[kMinutes] == ':';
    if (has_seconds) own += ":%S";
    const size_t end = like.find_first_of("Zz+-", kDate + 1);
    if (like.size() > kDate && end != std::string::npos) zone = like.substr(end);
    const auto there = parse_date(like.substr(0, like.size() - zone.size()), "");
    const auto here = parse_date(like, "");
    if (there && here) days += *there - *here;
  }
  const auto seconds = static_cast<std::time_t>(std::llround(days * kSecondsADay));
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const size_t length = std::strftime(text.data(), text.size(), own.c_str(), &parts);
  return std::string(text.data(), length) + zone;
}

const std::vector<std::string>& date_formats() {
  static const std::vector<std::string> formats = {"",         "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y",
                                                   "%d/%m/%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y"};
  return formats;
}

bool is_date_of(std::string_view text, const std::string& format) {
  if (!parse_date(text, format)) return false;
  if (!format.ends_with("%y")) return true;
  constexpr size_t kPadded = 8;  // "03.05.21"; "1.2.10" is rather the number of a version
  const char separator = format[2];
  return text.size() - text.rfind(separator) == 3 && (separator != '.' || text.size() == kPadded);
}

}  // namespace trainrun
