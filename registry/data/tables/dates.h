#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// Reads a date, or a date with a time of day, as days since 1970-01-01T00:00 UTC, the time as a fraction. `format` is
/// strptime's ("%d.%m.%Y"), or "" for ISO 8601: "2024-05-31", "2024-05-31T18:30:05.5Z", "2024-05-31 18:30+02:00".
/// Nothing where the text is something else, or there is no such day.
std::optional<double> parse_date(std::string_view text, const std::string& format);

/// The same, of a column whose `format` is known: a date that ISO 8601 writes is read, too, unless the format begins with
/// the year, so that one could be taken for the other. Parquet files, databases and pandas write dates so, whatever the
/// file with the training data had.
std::optional<double> parse_any_date(std::string_view text, const std::string& format);

/// The text of `days` since 1970-01-01T00:00 UTC, to seconds, written as `like` is, which parse_date reads by `format`.
std::string date_text(double days, const std::string& format, const std::string& like);

/// The formats that are tried where none is given: "" (ISO 8601) first.
const std::vector<std::string>& date_formats();
constexpr size_t kNumDateFormats = 8;

/// Whether a text is to be taken for a date of one of these formats, though nobody says that it is one: years of two
/// digits have exactly two.
bool is_date_of(std::string_view text, const std::string& format);

}  // namespace trainrun
