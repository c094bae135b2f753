#include "runner/report/class_report.h"

#include <algorithm>
#include <cmath>

#include "runner/base/text.h"

namespace trainrun {
namespace {

double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

std::string cell(const std::string& text, size_t width) {
  const size_t own = text_width(text);
  return (own < width ? std::string(width - own, ' ') : "") + text;
}

std::string count_text(double count) { return std::to_string(std::llround(count)); }

}  // namespace

ClassReport::Row ClassReport::row(size_t i) const {
  double labels = 0, predictions = 0;
  for (size_t k = 0; k < classes; ++k) {
    labels += counts[i * classes + k];
    predictions += counts[k * classes + i];
  }
  const double right = counts[i * classes + i];
  return {share(right, predictions), share(right, labels), share(2 * right, labels + predictions), labels};
}

double ClassReport::accuracy() const {
  double right = 0, all = 0;
  for (size_t i = 0; i < classes; ++i) right += counts[i * classes + i];
  for (const double count : counts) all += count;
  return share(right, all);
}

std::string ClassReport::class_text(size_t i) const {
  return std::to_string(i) + (names.size() == classes ? " " + names[i] : "");
}

std::vector<ClassReport> take_class_reports(Figures& figures) {
  const std::string mark = std::string("/") + kClassReport + "/";
  std::vector<ClassReport> reports;
  Figures others;
  for (const auto& [name, value] : figures) {
    const size_t at = name.find(mark);
    if (at == std::string::npos) {
      others.emplace_back(name, value);
      continue;
    }
    const std::string prefix = name.substr(0, at);
    if (reports.empty() || reports.back().prefix != prefix) reports.push_back({prefix, 0, {}});
    reports.back().counts.push_back(value);  // the figures come row by row
  }
  for (ClassReport& report : reports) {
    report.classes = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(report.counts.size()))));
  }
  figures = others;
  return reports;
}

std::string to_text(const ClassReport& report) {
  constexpr size_t kWide = 11;
  size_t first = kWide;
  for (size_t i = 0; i < report.classes; ++i) first = std::max(first, text_width(report.class_text(i)) + 1);
  std::string text = report.prefix + ": accuracy " + decimal(report.accuracy()) + "\n" + cell("class", first);
  for (const char* head : {"precision", "recall", "f1", "samples"}) text += cell(head, kWide);
  text += '\n';
  size_t width = std::to_string(report.classes).size();
  for (size_t i = 0; i < report.classes; ++i) {
    const ClassReport::Row row = report.row(i);
    text += cell(report.class_text(i), first);
    for (const double number : {row.precision, row.recall, row.f1}) text += cell(decimal(number), kWide);
    text += cell(count_text(row.samples), kWide) + "\n";
    width = std::max(width, count_text(row.samples).size());
  }
  ++width;
  text += "\nrows: the samples' classes; columns: the predicted classes\n" + cell("", first);
  for (size_t i = 0; i < report.classes; ++i) text += cell(std::to_string(i), width);
  text += '\n';
  for (size_t i = 0; i < report.classes; ++i) {
    text += cell(report.class_text(i), first);
    for (size_t k = 0; k < report.classes; ++k) text += cell(count_text(report.counts[i * report.classes + k]), width);
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json to_json(const ClassReport& report) {
  nlohmann::ordered_json json = {{"accuracy", report.accuracy()}};
  json["classes"] = nlohmann::ordered_json::array();
  json["confusion_matrix"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < report.classes; ++i) {
    const ClassReport::Row row = report.row(i);
    json["classes"].push_back({{"class", i},
                               {"name", report.names.size() == report.classes ? nlohmann::ordered_json(report.names[i])
                                                                              : nlohmann::ordered_json()},
                               {"precision", row.precision},
                               {"recall", row.recall},
                               {"f1", row.f1},
                               {"samples", std::llround(row.samples)}});
    nlohmann::ordered_json line = nlohmann::ordered_json::array();
    for (size_t k = 0; k < report.classes; ++k) line.push_back(std::llround(report.counts[i * report.classes + k]));
    json["confusion_matrix"].push_back(line);
  }
  return json;
}

}  // namespace trainrun
