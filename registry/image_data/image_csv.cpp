#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "registry/data/tables/csv_reader.h"
#include "registry/data/wide_numbers.h"
#include "registry/image_data/image_samples.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/text_number.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

struct ImageCsv : ImageOptions {
  std::string path;
  std::optional<std::string> root;
  std::string image = "path";
  std::variant<std::string, std::vector<std::string>> label = std::string("label");
  std::string delimiter = ",";
  TextEncoding encoding = TextEncoding::kUtf8;
  std::optional<std::string> task;

  static void describe(Fields<ImageCsv>& f) {
    f.required("path", &ImageCsv::path).doc("a CSV file, plain or .gz, whose first record names the columns");
    f.optional("root", &ImageCsv::root).doc("the folder that the images' paths begin at; null: that of the CSV file");
    f.optional("image", &ImageCsv::image).doc("the column that holds the images' paths");
    f.optional("label", &ImageCsv::label)
        .not_empty("expected at least one column")
        .doc(
            "the column of the class: a number from 0, or a name; classes with names are numbered in the order of the "
            "names in the training data. A list of columns: numbers, one for each label, such as 0 or 1");
    f.optional("delimiter", &ImageCsv::delimiter).doc("the character between two fields");
    f.optional("encoding", &ImageCsv::encoding).doc(kEncodingHelp);
    describe_classes_into(f);
    f.optional("task", &ImageCsv::task)
        .one_of({"classification", "regression"})
        .doc(
            "for a single label: classification: it is a class; regression: a number, given as [N, 1] float32; null: "
            "regression if every loss that reads the label learns numbers (MSELoss, L1Loss, …), else classification, "
            "which refuses labels that are fractions");
    describe_into(f);
  }
  void check(Checker& checker) const {
    if (delimiter.size() != 1) checker.fail("delimiter", "expected one character");
    const bool has_list = std::holds_alternative<std::vector<std::string>>(label);
    if (has_list && task == "classification") checker.fail("task", "is for one label; a list of columns holds numbers");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class ImageCsvDataset : public ImageSamples {
 public:
  explicit ImageCsvDataset(const ImageCsv& options) : ImageSamples(options), options_(options) {}

  DatasetFacts facts() const override {
    DatasetFacts facts = ImageSamples::facts();
    facts.field = [this, of_image = facts.field](const std::string& name) {
      FieldFacts field = of_image(name);
      if (name != "label") return field;
      if (const auto* one = std::get_if<std::string>(&options_.label)) {
        field.called = *one;
      } else {
        field.names_within = std::get<std::vector<std::string>>(options_.label);
      }
      return field;
    };
    facts.texts = [this, of_files = facts.texts](const std::string& column) { return texts(column, of_files); };
    facts.unlabelled = [this, of_files = facts.unlabelled](UnlabelledSource source) {
      source.paths = with_pictures_of_tables(source.paths);
      return of_files(source);
    };
    return facts;
  }

 private:
  fs::path folder_of(const std::string& table) const {
    return options_.root ? fs::path(*options_.root) : fs::path(table).parent_path();
  }
  /// With the pictures that tables name, which need no labels, in place of the tables.
  std::vector<std::string> with_pictures_of_tables(const std::vector<std::string>& paths) const {
    std::vector<std::string> pictures;
    for (const std::string& path : paths) {
      const std::string ending =
          (fs::path(path).extension() == ".gz" ? fs::path(path).stem() : fs::path(path)).extension();
      if (ending != ".csv" && ending != ".tsv" && ending != ".txt") {
        pictures.push_back(path);
        continue;
      }
      CsvReader reader(path, options_.delimiter[0], options_.encoding);
      std::vector<std::string> record;
      if (!reader.next(record)) throw DataError(path + ": the file is empty");
      const size_t width = record.size();
      const size_t image = column_of(record, options_.image, path);
      while (reader.next(record)) {
        require_path(reader, record, width, image);
        pictures.push_back((folder_of(path) / record[image]).string());
      }
    }
    return pictures;
  }
  void require_path(const CsvReader& reader, const std::vector<std::string>& record, size_t width, size_t image) const {
    if (record.size() != width) {
      throw DataError(reader.place() + ": " + std::to_string(record.size()) + " fields, expected the " +
                      std::to_string(width) + " of the first record");
    }
    if (record[image].empty()) throw DataError(reader.place() + ":" + options_.image + ": there is no path");
  }
  /// The file is read once more: its other columns are not kept.
  template <class Texts>
  std::vector<std::string> texts(const std::string& column, const Texts& of_files) const {
    CsvReader reader(options_.path, options_.delimiter[0], options_.encoding);
    std::vector<std::string> record;
    reader.next(record);
    if (column == "label") return {};
    if (column == "folder" && std::find(record.begin(), record.end(), column) == record.end()) {
      return of_files(column);
    }
    const size_t place = column_of(record, column);
    std::vector<std::string> all;
    while (reader.next(record)) all.push_back(record.at(place));
    std::vector<std::string> left;
    for (size_t i = 0; i < static_cast<size_t>(size()); ++i) left.push_back(all.at(listed(i)));
    return left;
  }

 protected:
  Listing list() const override {
    CsvReader reader(options_.path, options_.delimiter[0], options_.encoding);
    std::vector<std::string> record;
    if (!reader.next(record)) throw DataError("ImageCSV: " + options_.path + ": the file is empty");
    const size_t image = column_of(record, options_.image);
    std::vector<size_t> columns;
    const auto* one = std::get_if<std::string>(&options_.label);
    for (const std::string& name : one ? std::vector{*one} : std::get<std::vector<std::string>>(options_.label)) {
      columns.push_back(column_of(record, name));
    }
    Table table;
    table.listing.list = options_.path;
    const size_t width = record.size();
    const fs::path folder = folder_of(options_.path);
    while (reader.next(record)) {
      require_path(reader, record, width, image);
      table.listing.files.push_back((folder / record[image]).string());
      table.listing.lines.push_back(reader.line());
      for (const size_t column : columns) table.values.push_back(record[column]);
    }
    if (table.listing.files.empty()) throw DataError("ImageCSV: " + options_.path + ": names no images");
    if (one && options_.task == "regression") {
      read_numbers(table, {*one});
    } else if (one) {
      if (!options_.task) refuse_fractions(table, *one);
      read_classes(table, *one);
    } else {
      read_numbers(table, std::get<std::vector<std::string>>(options_.label));
    }
    return std::move(table.listing);
  }

 private:
  struct Table {
    Listing listing;
    std::vector<std::string> values;  // of the labels' columns, record by record
  };

  /// Also names the parameter, whose default the column may be.
  std::string name_advice(const std::string& name, const std::vector<std::string>& header) const {
    const std::string near = nearest(name, header);
    const bool is_one = name == options_.image || std::holds_alternative<std::string>(options_.label);
    const bool is_image = name == options_.image;
    if (near.empty() && is_one) {
      return suggestion(name, header) + (is_image ? "; image: says which column has the pictures' paths"
                                                  : "; label: says which column has the classes");
    }
    if (near.empty() || !is_one) return suggestion(name, header);
    return "; did you mean " + near + "? Then write " + (is_image ? "image: " : "label: ") + near;
  }
  size_t column_of(const std::vector<std::string>& header, const std::string& name) const {
    return column_of(header, name, options_.path);
  }
  size_t column_of(const std::vector<std::string>& header, const std::string& name, const std::string& path) const {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) {
      const char delimiter = seeming_delimiter(header, name);
      throw DataError("ImageCSV: " + path + ": there is no column '" + name + "'" +
                      (delimiter == '\0' ? name_advice(name, header)
                                         : "; the columns seem to be separated by " + delimiter_text(delimiter) +
                                               ": write delimiter: " + delimiter_text(delimiter)));
    }
    return static_cast<size_t>(found - header.begin());
  }

  /// Where all labels are numbers and one is a fraction, they can hardly be classes.
  static void refuse_fractions(const Table& table, const std::string& column) {
    std::optional<size_t> fraction;
    for (size_t i = 0; i < table.values.size(); ++i) {
      const auto number = number_of<double>(table.values[i]);
      if (!number) return;
      if (!fraction && *number != std::floor(*number)) fraction = i;
    }
    if (!fraction) return;
    throw DataError(
        table.listing.place(*fraction) + ":" + column + ": " + table.values[*fraction] +
        " is a fraction, as no class is where all labels are numbers; write task: regression to learn numbers, "
        "or task: classification to have them as classes all the same");
  }

  static void read_classes(Table& table, const std::string& column) {
    std::vector<int64_t> labels;
    std::map<std::string, int64_t> numbers;  // of the names, in their order
    for (size_t i = 0; i < table.values.size(); ++i) {
      if (table.values[i].empty()) throw DataError(table.listing.place(i) + ":" + column + ": there is no class");
      numbers[table.values[i]];
      const auto number = number_of<int64_t>(table.values[i]);
      if (number && *number >= 0 && labels.size() == i) labels.push_back(*number);
    }
    if (labels.size() == table.values.size()) {
      table.listing.num_classes = *std::max_element(labels.begin(), labels.end()) + 1;
    } else {
      labels.clear();
      std::vector<std::string>& names = table.listing.classes;
      for (auto& [name, number] : numbers) {
        number = static_cast<int64_t>(names.size());
        names.push_back(name);
      }
      for (const std::string& value : table.values) labels.push_back(numbers.at(value));
      table.listing.num_classes = static_cast<int64_t>(table.listing.classes.size());
    }
    table.listing.labels = at::tensor(labels, at::kLong);
  }

  static void read_numbers(Table& table, const std::vector<std::string>& columns) {
    std::vector<double> numbers;
    for (size_t i = 0; i < table.values.size(); ++i) {
      const auto number = number_of<double>(table.values[i]);
      if (!number || !std::isfinite(static_cast<float>(*number))) {
        throw DataError(table.listing.place(i / columns.size()) + ":" + columns[i % columns.size()] + ": '" +
                        table.values[i] + "' is not a number");
      }
      numbers.push_back(*number);
    }
    const at::Tensor labels = at::tensor(numbers, at::kDouble).view({-1, static_cast<int64_t>(columns.size())});
    table.listing.labels = fits_float32(labels) ? labels.to(at::kFloat) : labels;
  }

  ImageCsv options_;
};

std::unique_ptr<Dataset> ImageCsv::build(const DatasetInputs&) const {
  return std::make_unique<ImageCsvDataset>(*this);
}

}  // namespace

void add_image_csv(DatasetRegistry& datasets) {
  datasets.add<ImageCsv>("ImageCSV", "image files that a CSV file names, with their classes, or several labels each");
}

}  // namespace trainrun
