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

/// Of counts [2, 2]: label, prediction.
ClassReport::Row label_row(const double* counts) {
  const double right = counts[3], predicted = counts[1] + counts[3], actual = counts[2] + counts[3];
  return {share(right, predicted), share(right, actual), share(2 * right, predicted + actual), actual};
}

/// The rows' mean by these weights, or their plain mean where all are 0.
ClassReport::Row mean_of(const std::vector<ClassReport::Row>& rows, const std::vector<double>& weights) {
  ClassReport::Row mean = {0, 0, 0, 0};
  double all = 0;
  for (const double weight : weights) all += weight;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double part = all == 0 ? 1 / static_cast<double>(rows.size()) : weights[i] / all;
    mean.precision += part * rows[i].precision;
    mean.recall += part * rows[i].recall;
    mean.f1 += part * rows[i].f1;
    mean.samples += rows[i].samples;
  }
  return mean;
}

std::string count_text(double count) { return std::to_string(std::llround(count)); }

}  // namespace

ClassReport::Row ClassReport::row(size_t i) const {
  if (has_labels) return label_row(&counts[4 * i]);
  double labels = 0, predictions = 0;
  for (size_t k = 0; k < classes; ++k) {
    labels += counts[i * classes + k];
    predictions += counts[k * classes + i];
  }
  const double right = counts[i * classes + i];
  return {share(right, predictions), share(right, labels), share(2 * right, labels + predictions), labels};
}

std::vector<std::pair<std::string, ClassReport::Row>> ClassReport::averages() const {
  std::vector<double> together(4, 0), weights;
  std::vector<Row> rows;
  for (size_t i = 0; i < counts.size(); ++i) together[i % 4] += counts[i];
  for (size_t i = 0; i < classes; ++i) {
    rows.push_back(row(i));
    weights.push_back(rows.back().samples);
  }
  return {{"micro avg", label_row(together.data())},
          {"macro avg", mean_of(rows, std::vector<double>(classes, 1))},
          {"weighted avg", mean_of(rows, weights)}};
}

double ClassReport::accuracy() const {
  double right = 0, all = 0;
  for (size_t i = 0; has_labels && i < counts.size(); i += 4) right += counts[i] + counts[i + 3];
  for (const double count : counts) all += count;
  if (has_labels) return share(right, all);
  all = 0;
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
    ClassReport& report = reports.back();
    report.counts.push_back(value);  // the figures come row by row
    const std::string cell = name.substr(at + mark.size());
    report.has_labels = std::count(cell.begin(), cell.end(), '/') == 2;  // "LABEL/0/1"
    const std::string label = cell.substr(0, cell.find('/'));
    if (report.has_labels && report.counts.size() % 4 == 1) report.names.push_back(label);
  }
  for (ClassReport& report : reports) {
    if (report.has_labels) {
      report.classes = report.names.size();
      if (report.names.front() == "0") report.names.clear();  // numbers
      continue;
    }
    report.classes = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(report.counts.size()))));
  }
  figures = others;
  return reports;
}

namespace {

std::string text_of_labels(const ClassReport& report) {
  std::vector<std::pair<std::string, ClassReport::Row>> rows;
  for (size_t i = 0; i < report.classes; ++i) rows.emplace_back(report.class_text(i), report.row(i));
  for (const auto& average : report.averages()) rows.push_back(average);
  constexpr size_t kWide = 11;
  size_t first = kWide;
  for (const auto& [name, row] : rows) first = std::max(first, text_width(name) + 1);
  std::string text = report.prefix + ": of all labels " + decimal(100 * report.accuracy(), 2) + " % are right\n" +
                     cell("label", first);
  for (const char* head : {"precision", "recall", "f1", "samples"}) text += cell(head, kWide);
  text += '\n';
  for (const auto& [name, row] : rows) {
    text += cell(name, first);
    for (const double number : {row.precision, row.recall, row.f1}) text += cell(decimal(number), kWide);
    text += cell(count_text(row.samples), kWide) + "\n";
  }
  return text;
}

nlohmann::ordered_json json_of(const ClassReport::Row& row) {
  return {{"precision", row.precision}, {"recall", row.recall}, {"f1", row.f1}, {"samples", std::llround(row.samples)}};
}

nlohmann::ordered_json json_of_labels(const ClassReport& report) {
  nlohmann::ordered_json json = {{"accuracy", report.accuracy()}, {"labels", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < report.classes; ++i) {
    nlohmann::ordered_json one = {{"label", i}};
    one["name"] = report.names.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(report.names[i]);
    one.update(json_of(report.row(i)));
    const auto count = [&](size_t cell) { return std::llround(report.counts[4 * i + cell]); };
    one["confusion_matrix"] = {{count(0), count(1)}, {count(2), count(3)}};
    json["labels"].push_back(one);
  }
  for (const auto& [name, row] : report.averages()) json[name] = json_of(row);
  return json;
}

}  // namespace

std::string to_text(const ClassReport& report) {
  if (report.has_labels) return text_of_labels(report);
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
  if (report.has_labels) return json_of_labels(report);
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
