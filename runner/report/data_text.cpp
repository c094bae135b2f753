#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "registry/language/text_forms.h"
#include "registry/language/utf8.h"
#include "runner/base/text.h"
#include "runner/data/picture.h"
#include "runner/report/data_survey.h"

namespace trainrun {
namespace {

constexpr size_t kMostRows = 24;          // of a table
constexpr size_t kMostPictures = 4;       // of a set
constexpr int64_t kColumns = 32;          // of a picture, in characters
constexpr int64_t kMostPictureRows = 48;  // in pixels, two a character
constexpr size_t kWidth = 100;

using Align = TextTable::Align;

/// For a terminal: nothing that moves its cursor or changes its colours.
std::string safe(const std::string& text) {
  std::string shown;
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const uint32_t point = next_code_point(text, offset);
    const bool is_fine = point != kInvalidCodePoint && is_printable(point) && point >= ' ';
    if (point == kInvalidCodePoint) ++offset;
    shown += is_fine ? text.substr(begin, offset - begin) : "?";
  }
  return shown;
}

/// The same in one line, with \n for a line's end.
std::string line_of(const std::string& text) {
  std::string line;
  for (const char letter : text) {
    if (letter == '\n') {
      line += "\\n";
    } else if (letter == '\t') {
      line += "\\t";
    } else {
      line += letter;
    }
  }
  return safe(line);
}

/// Lines of `width` characters: where tokens follow each other there are no words to break between.
std::vector<std::string> folded(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  size_t count = 0;
  for (size_t offset = 0; offset < text.size(); ++count) {
    const size_t begin = offset;
    next_code_point(text, offset);
    offset = std::max(offset, begin + 1);
    if (count > 0 && count % width == 0) lines.emplace_back();
    lines.back() += text.substr(begin, offset - begin);
  }
  return lines;
}

std::string columns_text(const SurveyedSet& set) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"", "mean", "deviation", "least", "most", "not finite"});
  for (size_t i = 0; i < std::min(set.columns.size(), kMostRows); ++i) {
    const SurveyedSet::Column& column = set.columns[i];
    table.add({safe(column.name), in_figures(column.mean, 4), in_figures(column.deviation, 4),
               in_figures(column.least, 4), in_figures(column.most, 4), grouped(column.not_finite)});
  }
  const size_t others = set.columns.size() - std::min(set.columns.size(), kMostRows);
  return table.to_string("  ") + (others > 0 ? "  … and " + std::to_string(others) + " others\n" : "");
}

std::string classes_text(const SurveyedSet& set) {
  constexpr double kBar = 40;
  int64_t most = 1;
  for (const SurveyedSet::ClassCount& each : set.classes) most = std::max(most, each.count);
  TextTable table({Align::kLeft, Align::kRight, Align::kLeft});
  for (size_t i = 0; i < std::min(set.classes.size(), kMostRows); ++i) {
    const SurveyedSet::ClassCount& each = set.classes[i];
    const auto length = static_cast<size_t>(kBar * static_cast<double>(each.count) / static_cast<double>(most));
    table.add({safe(each.name), grouped(each.count), std::string(length, '#')});
  }
  const size_t others = set.classes.size() - std::min(set.classes.size(), kMostRows);
  return "  " + set.counted + " of each class\n" + table.to_string("  ") +
         (others > 0 ? "  … and " + std::to_string(others) + " others\n" : "");
}

/// The mean of the pixels that fall on place [y, x] of `height` rows and `width` columns: "r;g;b".
std::string colour_at(const at::Tensor& picture, int64_t y, int64_t x, int64_t height, int64_t width) {
  const auto range = [](int64_t place, int64_t places, int64_t size) {
    const int64_t begin = std::min(place * size / places, size - 1);
    return std::pair(begin, std::max((place + 1) * size / places - begin, int64_t{1}));
  };
  const auto [top, rows] = range(y, height, picture.size(0));
  const auto [left, columns] = range(x, width, picture.size(1));
  const at::Tensor mean =
      picture.narrow(0, top, rows).narrow(1, left, columns).to(at::kDouble).flatten(0, 1).mean(0, false);
  std::string text;
  for (int64_t i = 0; i < 3; ++i) {
    const auto level = std::lround(mean[mean.numel() == 3 ? i : 0].item<double>());
    text += (i > 0 ? ";" : "") + std::to_string(level);
  }
  return text;
}

/// Two rows of pixels make one of half blocks, whose upper half has the foreground's colour.
std::string half_blocks(const at::Tensor& picture) {
  const int64_t width = std::min(kColumns, picture.size(1));
  const int64_t fitting = width * picture.size(0) / picture.size(1);
  const int64_t height = std::clamp<int64_t>(fitting, 2, kMostPictureRows) / 2 * 2;
  std::string text;
  for (int64_t y = 0; y < height; y += 2) {
    text += "  ";
    for (int64_t x = 0; x < width; ++x) {
      text += "\x1b[38;2;" + colour_at(picture, y, x, height, width) + "m\x1b[48;2;" +
              colour_at(picture, y + 1, x, height, width) + "m▀";
    }
    text += "\x1b[0m\n";
  }
  return text;
}

std::string numbers_text(const at::Tensor& input) {
  constexpr int64_t kMost = 16;
  const at::Tensor numbers = input.to(at::kDouble).reshape({-1});
  std::string text;
  for (int64_t i = 0; i < std::min(numbers.numel(), kMost); ++i) {
    text += (i > 0 ? " " : "") + in_figures(numbers[i].item<double>(), 4);
  }
  return text + (numbers.numel() > kMost ? " …" : "");
}

std::string percent(double share) { return in_figures(100 * share, 4) + " %"; }

std::string tokens_text(const SurveyedSet::Tokens& tokens) {
  constexpr double kBar = 40;
  std::string text = "  " + safe(tokens.field) + ": " + grouped(tokens.total) + " tokens, " + grouped(tokens.distinct) +
                     " different ones" + (tokens.vocabulary ? " of " + grouped(*tokens.vocabulary) : "") + "; " +
                     percent(tokens.padding_share) + " of the batches is padding\n";
  if (tokens.target_share) text += "  " + percent(*tokens.target_share) + " of the tokens have a target that counts\n";
  if (tokens.unknown) text += "  unknown tokens: " + grouped(*tokens.unknown) + "\n";
  text += "  tokens of a sample: " + grouped(tokens.shortest) + " to " + grouped(tokens.longest) + ", mean " +
          in_figures(tokens.mean_length, 4) + ", median " + grouped(tokens.median) + ", 95 % have at most " +
          grouped(tokens.long_one) + "\n";
  if (tokens.lengths.size() < 2) return text;
  int64_t most = 1;
  for (const SurveyedSet::Tokens::Bar& bar : tokens.lengths) most = std::max(most, bar.count);
  TextTable table({Align::kRight, Align::kRight, Align::kLeft});
  for (const SurveyedSet::Tokens::Bar& bar : tokens.lengths) {
    const auto length = static_cast<size_t>(kBar * static_cast<double>(bar.count) / static_cast<double>(most));
    table.add({grouped(bar.least) + (bar.most > bar.least ? "-" + grouped(bar.most) : ""), grouped(bar.count),
               std::string(length, '#')});
  }
  return text + table.to_string("  ");
}

/// Tokens side by side; those at which a target counts in brackets; padding only by its number.
std::string row_text(const SurveyedSet::TokenRow& row) {
  std::string text;
  size_t padding = 0;
  bool is_open = false;
  const char* between = "";
  for (const SurveyedSet::TokenRow::Token& token : row.tokens) {
    if (token.padding) {
      ++padding;
      continue;
    }
    if (token.counts != is_open) {
      text += !token.counts ? "] " : text.empty() ? "[" : " [";
      is_open = token.counts;
      between = "";
    }
    text += between + line_of(token.text);
    between = "|";
  }
  if (is_open) text += ']';
  if (padding > 0) text += " + " + grouped(static_cast<int64_t>(padding)) + " padding";
  return text;
}

std::string rows_text(const SurveyedSet::Sample& sample) {
  constexpr size_t kMostLines = 12;
  std::string text;
  for (const SurveyedSet::TokenRow& row : sample.rows) {
    std::vector<std::string> parts = {row_text(row)};
    if (!row.decoded.empty()) parts.push_back("\"" + line_of(row.decoded) + "\"");
    if (sample.rows.size() > 1) text += "    " + safe(row.field) + "\n";
    for (const std::string& part : parts) {
      std::vector<std::string> lines = folded(part, kWidth - 4);
      const bool is_cut = lines.size() > kMostLines;
      if (is_cut) lines.resize(kMostLines);
      for (const std::string& line : lines) text += "    " + line + "\n";
      if (is_cut) text += "    …\n";
    }
  }
  return text;
}

std::string samples_text(const SurveyedSet& set) {
  std::string text;
  size_t pictures = 0;
  const bool has_targets = !set.shown.empty() && !set.shown[0].rows.empty() && set.shown[0].rows[0].has_targets;
  if (has_targets) text += "  tokens in [ ] have a target that counts: the token that comes next\n";
  for (const SurveyedSet::Sample& sample : set.shown) {
    if (!sample.rows.empty()) {
      text += "  " + safe(sample.place) + (sample.label.empty() ? "" : " → " + safe(sample.label)) + "\n";
      text += rows_text(sample);
      continue;
    }
    const at::Tensor picture = picture_of(sample.input);
    if (picture.defined() && pictures++ == kMostPictures) break;
    text += "  " + safe(sample.place) + (sample.label.empty() ? "" : " → " + safe(sample.label)) + "\n";
    text += picture.defined() ? half_blocks(picture) : "    " + numbers_text(sample.input) + "\n";
  }
  return text;
}

}  // namespace

std::string grouping_text(const SurveyedSet::Grouping& grouping) {
  const std::string is = " of the first epoch's batches is padding; ";
  if (grouping.is_on) {
    return "group_by_length: " + percent(grouping.grouped) + is + "without it, " + percent(grouping.shuffled);
  }
  return percent(grouping.shuffled) + is + "with dataloader.group_by_length: true, " + percent(grouping.grouped);
}

namespace {

/// `text` within the width, after `head`.
std::string paragraph(const std::string& head, const std::string& text) {
  std::string lines;
  std::string indent = head;
  for (const std::string& line : wrapped(safe(text), kWidth - indent.size())) {
    lines += indent + line + "\n";
    indent = std::string(indent.size(), ' ');
  }
  return lines;
}

}  // namespace

std::string to_text(const DataSurvey& survey, bool with_pictures) {
  std::string text = safe(survey.name) + " (" + safe(survey.path) + ")\n";
  for (const SurveyedSet& set : survey.sets) {
    text += "\n" + set.name + ": " + grouped(set.samples) + " samples; the first " + grouped(set.measured) +
            " of an epoch, as the model receives them:\n";
    if (!set.columns.empty()) text += columns_text(set);
    for (const SurveyedSet::Tokens& tokens : set.tokens) text += tokens_text(tokens);
    if (set.grouping) text += "  " + grouping_text(*set.grouping) + "\n";
    if (!set.classes.empty()) text += classes_text(set);
    if (with_pictures) text += samples_text(set);
  }
  text += "\nwhat a run keeps of them, to read other data by:\n";
  for (const std::string& line : survey.contract) text += paragraph("  ", line);
  text += survey.warnings.empty() ? "\nnothing suspicious was found\n" : "\n";
  for (const std::string& warning : survey.warnings) text += paragraph("warning: ", warning);
  return text;
}

}  // namespace trainrun
