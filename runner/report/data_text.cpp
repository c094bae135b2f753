#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/text.h"
#include "runner/base/utf8.h"
#include "runner/report/data_survey.h"

namespace trainrun {
namespace {

constexpr size_t kMostRows = 24;          // of a table
constexpr size_t kMostPictures = 4;       // of a set
constexpr int64_t kColumns = 32;          // of a picture, in characters
constexpr int64_t kMostPictureRows = 48;  // in pixels, two a character
constexpr size_t kWidth = 100;

using Align = TextTable::Align;

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

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

std::string columns_text(const SurveyedSet& set) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.add({"", "mean", "deviation", "least", "most", "not finite"});
  for (size_t i = 0; i < std::min(set.columns.size(), kMostRows); ++i) {
    const SurveyedSet::Column& column = set.columns[i];
    table.add({safe(column.name), number_text(column.mean), number_text(column.deviation), number_text(column.least),
               number_text(column.most), grouped(column.not_finite)});
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
    text += (i > 0 ? " " : "") + number_text(numbers[i].item<double>());
  }
  return text + (numbers.numel() > kMost ? " …" : "");
}

std::string samples_text(const SurveyedSet& set) {
  std::string text;
  size_t pictures = 0;
  for (const SurveyedSet::Sample& sample : set.shown) {
    const at::Tensor picture = picture_of(sample.input);
    if (picture.defined() && pictures++ == kMostPictures) break;
    text += "  " + safe(sample.place) + (sample.label.empty() ? "" : " → " + safe(sample.label)) + "\n";
    text += picture.defined() ? half_blocks(picture) : "    " + numbers_text(sample.input) + "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const DataSurvey& survey, bool with_pictures) {
  std::string text = safe(survey.name) + " (" + safe(survey.path) + ")\n";
  for (const SurveyedSet& set : survey.sets) {
    text += "\n" + set.name + ": " + grouped(set.samples) + " samples; the first " + grouped(set.measured) +
            " of an epoch, as the model gets them:\n";
    if (!set.columns.empty()) text += columns_text(set);
    if (!set.classes.empty()) text += classes_text(set);
    if (with_pictures) text += samples_text(set);
  }
  text += survey.warnings.empty() ? "\nnothing suspicious was found\n" : "\n";
  for (const std::string& warning : survey.warnings) {
    std::string indent = "warning: ";
    for (const std::string& line : wrapped(safe(warning), kWidth - indent.size())) {
      text += indent + line + "\n";
      indent = std::string(indent.size(), ' ');
    }
  }
  return text;
}

}  // namespace trainrun
