#include <ATen/TensorOperators.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "registry/formats/images/encode.h"
#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/data/picture.h"
#include "runner/report/data_survey.h"
#include "runner/report/page/html.h"

namespace trainrun {
namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: 2px 10px; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr:nth-child(even) { background: #f4f4f4; }
.samples { display: flex; flex-wrap: wrap; gap: 12px; } figure { margin: 0; width: 160px; font-size: 12px; }
figure img { width: 160px; image-rendering: pixelated; border: 1px solid #ccc; }
figcaption { overflow-wrap: anywhere; } .wide { width: 340px; } .bar { background: #48c; height: 10px; }
.text { width: 100%; } .tokens span { border: 1px solid #ddd; padding: 0 2px; line-height: 1.8; }
.tokens .counts { background: #cde6cd; } .tokens .pad { color: #bbb; } pre { white-space: pre-wrap; }
.warning { background: #fff3cd; border-left: 4px solid #e0a800; padding: 4px 10px; margin: 4px 0; }
)";

std::string columns_html(const SurveyedSet& set) {
  std::string html = "<table>\n" + table_row({"", "mean", "deviation", "least", "most", "not finite"}, "th");
  for (const SurveyedSet::Column& column : set.columns) {
    html += table_row({escaped_html(column.name), in_figures(column.mean, 4), in_figures(column.deviation, 4),
                       in_figures(column.least, 4), in_figures(column.most, 4), grouped(column.not_finite)});
  }
  return html + "</table>\n";
}

std::string classes_html(const SurveyedSet& set) {
  constexpr double kBar = 300;  // pixels
  int64_t most = 1;
  for (const SurveyedSet::ClassCount& each : set.classes) most = std::max(most, each.count);
  std::string html = "<table>\n" + table_row({"class", set.counted, ""}, "th");
  for (const SurveyedSet::ClassCount& each : set.classes) {
    const double width = kBar * static_cast<double>(each.count) / static_cast<double>(most);
    html += table_row({escaped_html(each.name), grouped(each.count),
                       "<div class=\"bar\" style=\"width: " + std::to_string(std::lround(width)) + "px\"></div>"});
  }
  return html + "</table>\n";
}

/// The columns of a series [T, F] as lines; "" where it is none.
std::string lines_html(const at::Tensor& input) {
  constexpr int64_t kMostLines = 6, kMostPoints = 400;
  constexpr double kWidth = 320, kHeight = 120;
  constexpr std::array kColours = {"#48c", "#c44", "#4a4", "#a4a", "#c82", "#4aa"};
  if (input.dim() != 2 || input.size(0) < 2 || !at::isFloatingType(input.scalar_type())) return "";
  const at::Tensor rows = input.to(at::kDouble).nan_to_num(0, 0, 0);
  const auto least = rows.min().item<double>();
  const double span = std::max(rows.max().item<double>() - least, 1e-12);
  const int64_t step = (rows.size(0) + kMostPoints - 1) / kMostPoints;
  std::string html = "<svg width=\"320\" height=\"120\">";
  for (int64_t line = 0; line < std::min(rows.size(1), kMostLines); ++line) {
    html += "<polyline fill=\"none\" stroke=\"" + std::string(kColours[static_cast<size_t>(line)]) + "\" points=\"";
    for (int64_t i = 0; i < rows.size(0); i += step) {
      const double x = kWidth * static_cast<double>(i) / static_cast<double>(rows.size(0) - 1);
      html +=
          in_figures(x, 4) + "," + in_figures(kHeight * (1 - (rows[i][line].item<double>() - least) / span), 4) + " ";
    }
    html += "\"/>";
  }
  return html + "</svg>";
}

std::string numbers_html(const at::Tensor& input) {
  constexpr int64_t kMost = 64;
  const at::Tensor numbers = input.to(at::kDouble).reshape({-1});
  std::string text;
  for (int64_t i = 0; i < std::min(numbers.numel(), kMost); ++i) {
    text += (i > 0 ? " " : "") + in_figures(numbers[i].item<double>(), 4);
  }
  return "<code>" + text + (numbers.numel() > kMost ? " …" : "") + "</code>";
}

std::string tokens_html(const SurveyedSet::Tokens& tokens) {
  constexpr double kBar = 300;  // pixels
  const auto percent = [](double share) { return in_figures(100 * share, 4) + " %"; };
  std::string html = "<table>\n" + table_row({"<b>" + escaped_html(tokens.field) + "</b>", ""});
  html += table_row({"tokens, without padding", grouped(tokens.total)});
  html += table_row(
      {"different tokens", grouped(tokens.distinct) + (tokens.vocabulary ? " of " + grouped(*tokens.vocabulary) : "")});
  html += table_row({"share of the batches that is padding", percent(tokens.padding_share)});
  if (tokens.target_share) {
    html += table_row({"share of the tokens with a target that counts", percent(*tokens.target_share)});
  }
  if (tokens.unknown) html += table_row({"unknown tokens", grouped(*tokens.unknown)});
  html += table_row({"tokens of a sample: mean", in_figures(tokens.mean_length, 4)});
  html += table_row({"median", grouped(tokens.median)});
  html += table_row({"of 95 % at most", grouped(tokens.long_one)}) + "</table>\n";
  int64_t most = 1;
  for (const SurveyedSet::Tokens::Bar& bar : tokens.lengths) most = std::max(most, bar.count);
  html += "<table>\n" + table_row({"tokens of a sample", "samples", ""}, "th");
  for (const SurveyedSet::Tokens::Bar& bar : tokens.lengths) {
    const double width = kBar * static_cast<double>(bar.count) / static_cast<double>(most);
    html += table_row({grouped(bar.least) + " to " + grouped(bar.most), grouped(bar.count),
                       "<div class=\"bar\" style=\"width: " + std::to_string(std::lround(width)) + "px\"></div>"});
  }
  return html + "</table>\n";
}

std::string visible(const std::string& token) {
  std::string text;
  for (const char letter : token) text += letter == '\n' ? "\\n" : letter == '\t' ? "\\t" : std::string(1, letter);
  return escaped_html(text);
}

/// Tokens side by side: those at which a target counts are marked, padding is grey.
std::string row_html(const SurveyedSet::TokenRow& row) {
  std::string html = "<p class=\"tokens\">";
  for (const SurveyedSet::TokenRow::Token& token : row.tokens) {
    const char* kind = token.padding ? "pad" : token.counts ? "counts" : "";
    html += "<span class=\"" + std::string(kind) + "\">" + visible(token.text) + "</span> ";
  }
  return html + "</p>" + (row.decoded.empty() ? "" : "<pre>" + escaped_lines(row.decoded) + "</pre>");
}

std::string text_sample_html(const SurveyedSet::Sample& sample) {
  std::string html = "<figure class=\"text\"><figcaption><b>" + escaped_html(sample.label) + "</b> " +
                     escaped_html(sample.place) + "</figcaption>";
  for (const SurveyedSet::TokenRow& row : sample.rows) {
    html += (sample.rows.size() > 1 ? "<p>" + escaped_html(row.field) + "</p>" : "") + row_html(row);
  }
  return html + "</figure>\n";
}

std::string sample_html(const SurveyedSet::Sample& sample) {
  if (!sample.rows.empty()) return text_sample_html(sample);
  const at::Tensor picture = picture_of(sample.input);
  std::string content;
  if (picture.defined()) {
    content = "<img alt=\"\" src=\"data:image/png;base64," + base64(encode_png(picture)) + "\">";
  } else {
    content = lines_html(sample.input);
    if (content.empty()) content = numbers_html(sample.input);
  }
  return std::string("<figure") + (picture.defined() ? "" : " class=\"wide\"") + ">" + content + "<figcaption><b>" +
         escaped_html(sample.label) + "</b> " + escaped_html(sample.place) + "</figcaption></figure>\n";
}

}  // namespace

std::string to_html(const DataSurvey& survey) {
  std::string html =
      "<h1>" + escaped_html(survey.name) + ": what the model sees</h1>\n<p>" + escaped_html(survey.path) + "</p>\n";
  for (const std::string& warning : survey.warnings) {
    html += "<div class=\"warning\">" + escaped_html(warning) + "</div>\n";
  }
  if (survey.warnings.empty()) html += "<p>Nothing suspicious was found.</p>\n";
  html += "<details><summary>What a run keeps of them, to read other data by</summary>\n<ul>\n";
  for (const std::string& line : survey.contract) html += "<li>" + escaped_html(line) + "</li>\n";
  html += "</ul>\n</details>\n";
  for (const SurveyedSet& set : survey.sets) {
    html += "<h2>" + escaped_html(set.name) + "</h2>\n<p>" + grouped(set.samples) +
            " samples. Figures are computed from the first " + grouped(set.measured) +
            " of an epoch, after all transforms. Pictures with values outside [0, 1] are rescaled for "
            "display.</p>\n";
    if (!set.columns.empty()) html += columns_html(set);
    for (const SurveyedSet::Tokens& tokens : set.tokens) html += tokens_html(tokens);
    if (set.grouping) html += "<p>" + escaped_html(grouping_text(*set.grouping)) + "</p>\n";
    if (!set.classes.empty()) html += classes_html(set);
    const bool has_targets = !set.shown.empty() && !set.shown[0].rows.empty() && set.shown[0].rows[0].has_targets;
    if (has_targets) {
      html += "<p>Tokens on green have a target that counts: the token that comes next. Grey ones are padding.</p>\n";
    }
    html += "<div class=\"samples\">\n";
    for (const SurveyedSet::Sample& sample : set.shown) html += sample_html(sample);
    html += "</div>\n";
  }
  return to_html(HtmlPage{survey.name + ": the data", kStyle, html});
}

}  // namespace trainrun
