#include "registry/data/time_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "registry/data/tables/dates.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

using TimeValues = std::vector<double>;

constexpr double kSecondsADay = 86400;

/// All as one format reads them; empty where it does not read one of them.
TimeValues read_all(const std::vector<std::string>& texts,
                    const std::function<std::optional<double>(std::string_view)>& read) {
  TimeValues values;
  for (const std::string& text : texts) {
    const auto value = read(text);
    if (!value || !std::isfinite(*value)) return {};
    values.push_back(*value);
  }
  return values;
}

/// How far each time is from another, in units that make steps equal: as numbers, days, or months.
struct Scale {
  TimeValues values;
  std::string unit;    // "day", "month"; "" of numbers
  std::string format;  // of dates
  TimeValues days;     // of dates: as days, whatever the unit
};

/// The number of the month, where all dates are of one day of theirs, or the last.
TimeValues months_of(const TimeValues& days) {
  using std::chrono::sys_days;
  TimeValues months;
  bool one_day = true;
  bool last_day = true;
  std::optional<std::pair<unsigned, double>> first;  // the day of the month, and the time of the day
  for (const double day : days) {
    const double whole = std::floor(day);
    const std::chrono::year_month_day date{sys_days(std::chrono::days(static_cast<int64_t>(whole)))};
    const std::pair own(static_cast<unsigned>(date.day()), day - whole);
    if (!first) first = own;
    one_day = one_day && own == *first;
    last_day = last_day && date == std::chrono::year_month_day(date.year() / date.month() / std::chrono::last) &&
               own.second == first->second;
    months.push_back(static_cast<double>(static_cast<int>(date.year()) * 12) +
                     static_cast<double>(static_cast<unsigned>(date.month())));
  }
  return one_day || last_day ? months : TimeValues();
}

Scale scale_of(const SeriesTimes& times) {
  Scale scale{read_all(times.texts, [](std::string_view text) { return data_number_of(trimmed(text)); }), "", "", {}};
  if (!scale.values.empty()) return scale;
  std::vector<std::string> fitting;
  for (const std::string& format : date_formats()) {
    TimeValues days = read_all(times.texts, [&](std::string_view text) { return parse_date(trimmed(text), format); });
    if (days.empty()) continue;
    fitting.push_back(format);
    if (fitting.size() == 1) scale.values = std::move(days);
  }
  if (fitting.size() > 1) {
    throw DataError(times.place(0) + ": the dates may be of the form " + fitting[0] + " or " + fitting[1] +
                    "; write them as 2024-05-31");
  }
  if (fitting.empty()) {
    const auto is_time = [](const std::string& text) {
      return std::any_of(date_formats().begin(), date_formats().end(),
                         [&](const std::string& format) { return parse_date(trimmed(text), format).has_value(); });
    };
    const auto wrong = std::find_if_not(times.texts.begin(), times.texts.end(), is_time);
    const auto at = wrong == times.texts.end() ? times.texts.begin() : wrong;
    throw DataError(times.place(static_cast<size_t>(at - times.texts.begin())) + ": '" + *at +
                    "' is not a time: all are to be numbers, or dates such as 2024-05-31 or 2024-05-31T18:30");
  }
  scale.unit = "day";
  scale.format = fitting[0];
  scale.days = scale.values;
  if (TimeValues months = months_of(scale.values); !months.empty()) {
    scale.values = std::move(months);
    scale.unit = "month";
  }
  return scale;
}

/// Differences of days are rounded to milliseconds, so that equal ones are equal.
double rounded(double difference, const std::string& unit) {
  constexpr double kMilliseconds = kSecondsADay * 1000;
  return unit == "day" ? std::round(difference * kMilliseconds) / kMilliseconds : difference;
}

double most_frequent(const std::map<double, int64_t>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })  // the least of several
      ->first;
}

/// "1 day", "15 minutes", "3 months", "0.5".
std::string step_text(double step, const std::string& unit) {
  const auto counted = [](double count, const std::string& name) {
    return in_figures(count, 6) + " " + name + (count == 1 ? "" : "s");
  };
  if (unit.empty()) return in_figures(step, 6);
  if (unit == "month" || step >= 1) return counted(step, unit);
  const double seconds = step * kSecondsADay;
  if (seconds >= 3600) return counted(seconds / 3600, "hour");
  return seconds >= 60 ? counted(seconds / 60, "minute") : counted(seconds, "second");
}

/// Calls `take` with each row but the first of a series and its distance from the row before.
void for_each_step(const SeriesTimes& times, const Scale& scale,
                   const std::function<void(size_t row, double difference)>& take) {
  size_t begin = 0;
  for (const int64_t end : times.ends) {
    for (size_t i = begin + 1; i < static_cast<size_t>(end); ++i) {
      take(i, rounded(scale.values[i] - scale.values[i - 1], scale.unit));
    }
    begin = static_cast<size_t>(end);
  }
}

/// The most frequent distance from a row to the next; nothing: there are no two rows.
std::optional<double> step_of(const SeriesTimes& times, const Scale& scale) {
  std::map<double, int64_t> counts;
  for_each_step(times, scale, [&](size_t i, double difference) {
    if (difference <= 0) {
      throw DataError(times.place(i) + ": " + times.texts[i] + " is " +
                      (difference == 0 ? "the time" : "before the time") + " of the row before it in the series, " +
                      times.texts[i - 1] + ": sort the rows by time, or name the column of the series in group");
    }
    ++counts[difference];
  });
  return counts.empty() ? std::nullopt : std::optional(most_frequent(counts));
}

/// The day of the month that is so many months after that of `day`: the last one where all are the last ones of theirs.
double months_later(double day, int64_t months, bool are_last) {
  const double whole = std::floor(day);
  std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int64_t>(whole)))};
  date += std::chrono::months(months);
  if (are_last || !date.ok()) date = date.year() / date.month() / std::chrono::last;
  return static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count()) + (day - whole);
}

bool is_last_of_month(double day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int64_t>(std::floor(day))))};
  return date == std::chrono::year_month_day(date.year() / date.month() / std::chrono::last);
}

}  // namespace

TimeGaps find_gaps(const SeriesTimes& times) {
  if (times.texts.empty()) return {};
  const Scale scale = scale_of(times);
  TimeGaps gaps;
  const std::optional<double> found = step_of(times, scale);
  if (!found) return gaps;
  const double step = *found;
  for_each_step(times, scale, [&](size_t i, double difference) {
    if (difference == step) return;
    const double missing = difference / step - 1;
    const bool is_whole = missing >= 1 && missing == std::round(missing);
    gaps.starts.push_back(static_cast<int64_t>(i));
    gaps.texts.push_back(times.place(i) + ": " +
                         (is_whole ? in_figures(missing, 6) + (missing == 1 ? " step of " : " steps of ") +
                                         step_text(step, scale.unit) + (missing == 1 ? " is" : " are") +
                                         " missing after " + times.texts[i - 1]
                                   : times.texts[i] + " is not " + step_text(step, scale.unit) + " after " +
                                         times.texts[i - 1] + ", as most rows are"));
  });
  return gaps;
}

std::vector<std::string> times_after(const SeriesTimes& times, int64_t count) {
  if (times.texts.empty()) return {};
  const Scale scale = scale_of(times);
  const std::optional<double> step = step_of(times, scale);
  if (!step) return {};
  const bool are_last = std::all_of(scale.days.begin(), scale.days.end(), is_last_of_month);
  std::vector<std::string> texts;
  for (const int64_t end : times.ends) {
    const auto last = static_cast<size_t>(end) - 1;
    for (int64_t i = 1; i <= count; ++i) {
      const double later = static_cast<double>(i) * *step;
      if (scale.unit.empty()) {
        texts.push_back(in_figures(scale.values[last] + later, 15));
        continue;
      }
      const double day = scale.unit == "day"
                             ? scale.days[last] + later
                             : months_later(scale.days[last], static_cast<int64_t>(std::llround(later)), are_last);
      texts.push_back(date_text(day, scale.format, std::string(trimmed(times.texts[last]))));
    }
  }
  return texts;
}

}  // namespace trainrun
