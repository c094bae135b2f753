#include <ATen/ops/arange.h>

#include <string>
#include <utility>
#include <vector>

#include "registry/data/data_files.h"
#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"
#include "tests/registry/dataset_support.h"

namespace trainrun {
namespace {

using test::all_of;
using test::check_info;
using test::contains;
using test::dataset;
using test::gzip;
using test::message_of;
using test::open_dataset;

struct CsvFixture {
  TemporaryFolder folder;
  std::string path = folder / "table.csv";

  /// `options` in JSON, after a comma.
  std::string recipe(const std::string& options = "") const {
    return R"({"type": "CSV", "path": ")" + path + R"(", "label": "y")" + options + "}";
  }
  Batch read(const std::string& content, const std::string& options = "") const {
    folder.write("table.csv", content);
    const auto data = open_dataset(recipe(options));
    check_info(*data);
    return all_of(*data);
  }
  std::string error_of(const std::string& content, const std::string& options = "") const {
    folder.write("table.csv", content);
    return message_of<DataError>([&] { open_dataset(recipe(options)); });
  }
};

std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous().flatten();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

TEST_CASE_FIXTURE(CsvFixture, "CSV gives columns as features and a class as label") {
  const Batch batch = read("a,y,b\n1,0,2.5\n-3e2,2,+4\n");
  CHECK(batch.at("features").sizes() == at::IntArrayRef({2, 2}));
  CHECK(floats_of(batch.at("features")) == std::vector<float>{1, 2.5, -300, 4});
  CHECK((batch.at("label").scalar_type() == at::kLong));
  CHECK(floats_of(batch.at("label")) == std::vector<float>{0, 2});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV takes the columns named, in the order named") {
  const Batch batch = read("a,y,b,c\n1,0,2,x\n", R"(, "features": ["b", "a"])");
  CHECK(floats_of(batch.at("features")) == std::vector<float>{2, 1});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV gives the label of a regression as [N, 1] float32") {
  const Batch batch = read("a,y\n1,0.5\n2,-7\n", R"(, "task": "regression")");
  CHECK(batch.at("label").sizes() == at::IntArrayRef({2, 1}));
  CHECK(floats_of(batch.at("label")) == std::vector<float>{0.5, -7});
}

TEST_CASE_FIXTURE(CsvFixture, "CSV reads what RFC 4180 allows, and what programs write") {
  const std::vector<float> expected = {1, 2, 3, 4};
  const auto features = [&](const std::string& content, const std::string& options = "") {
    return floats_of(read(content, options).at("features"));
  };
  CHECK(features("a,b,y\r\n1,2,0\r\n3,4,1\r\n") == expected);  // CRLF
  CHECK(features("a,b,y\n1,2,0\n3,4,1") == expected);          // no end of line at the end
  CHECK(features("\xEF\xBB\xBF"
                 "a,b,y\n1,2,0\n3,4,1\n") == expected);         // byte-order mark
  CHECK(features("\na,b,y\n1,2,0\n\n3,4,1\n\n") == expected);   // blank lines
  CHECK(features("a,b,y\n 1 ,\t2,0\n3 , 4,1 \n") == expected);  // blanks around numbers
  CHECK(features("\"a\",\"b\",\"y\"\n\"1\",2,\"0\"\n3,\"4\",1\n") == expected);
  CHECK(features("a;b;y\n1;2;0\n3;4;1\n", R"(, "delimiter": ";")") == expected);
  CHECK(features("a\tb\ty\n1\t2\t0\n3\t4\t1\n", R"(, "delimiter": "\t")") == expected);
  CHECK(features("\"a \"\"q\"\", and\nmore\",b,y\n1,2,0\n3,4,1\n", R"(, "features": ["a \"q\", and\nmore", "b"])") ==
        expected);
  CHECK(features(gzip("a,b,y\n1,2,0\n3,4,1\n")) == expected);
  CHECK(floats_of(read("a,y\n1,2.0\n2,1e1\n").at("label")) == std::vector<float>{2, 10});  // whole numbers
}

TEST_CASE_FIXTURE(CsvFixture,
                  "CSV is read in its encoding, also where a character lies across two pieces of the file") {
  constexpr int kRows = 100'000;
  std::string utf8 = "a,y\n";
  std::string latin1 = utf8;
  std::string utf16 = "\xFE\xFF";
  for (const char c : utf8) utf16 += {'\0', c};
  for (int i = 0; i < kRows; ++i) {
    utf8 += "\xC3\xA4,1\n";  // ä
    latin1 += "\xE4,1\n";
    utf16 += std::string(
        "\0\xE4\0,\0"
        "1\0\n",
        8);
  }
  const std::string category = R"(, "columns": {"a": "category"})";
  const auto categories = [&](const std::string& content, const std::string& encoding) {
    folder.write("table.csv", content);
    const auto data = open_dataset(recipe(category + R"(, "encoding": ")" + encoding + "\""));
    data->learn(at::arange(data->size(), at::kLong));
    CHECK(data->size() == kRows);
    return data->learnt().at("a").at("categories").get<std::vector<std::string>>();
  };
  const std::vector<std::string> expected = {"\xC3\xA4"};
  CHECK(categories(utf8, "utf-8") == expected);
  CHECK(categories(latin1, "latin-1") == expected);
  CHECK(categories(utf16, "utf-16") == expected);
  const std::string message = error_of(utf8 + "\xC3", category);
  CHECK_MESSAGE(contains(message, ":100002: byte 1 of the line, 0xC3 at offset 500004 of the text, is not UTF-8"),
                message);
}

TEST_CASE_FIXTURE(CsvFixture, "CSV without a header names columns by number") {
  folder.write("table.csv", "1,0,2\n3,1,4\n");
  const auto data = open_dataset(R"({"type": "CSV", "path": ")" + path + R"(", "label": "1", "header": false})");
  check_info(*data);
  CHECK(floats_of(all_of(*data).at("features")) == std::vector<float>{1, 2, 3, 4});
  CHECK(floats_of(all_of(*data).at("label")) == std::vector<float>{0, 1});
}

TEST_CASE_FIXTURE(CsvFixture,
                  "CSV reads numbers with a decimal comma and marks between thousands, and leaves categories") {
  const std::string german = R"(, "delimiter": ";", "decimal": ",", "thousands": ".")";
  const std::vector<float> expected = {0.5, 1234.5, -1234567.25, 1e3};
  CHECK(floats_of(read("a;y\n0,5;0\n1.234,5;1\n-1.234.567,25;2\n1e3;3\n", german).at("features")) == expected);
  CHECK(floats_of(read("a;y\n1;1.000\n2;2\n", german).at("label")) == std::vector<float>{1000, 2});
  const std::string american = R"(, "thousands": ",")";
  CHECK(floats_of(read("a,y\n\"1,234.5\",0\n.5,1\n", american).at("features")) == std::vector<float>{1234.5, 0.5});
  const std::string words = german + R"(, "columns": {"v": {"type": "category", "categories": ["1.0,1", "10,1"]}})";
  CHECK(floats_of(read("v;y\n1.0,1;0\n10,1;1\n", words).at("v")) == std::vector<float>{0, 1});  // not numbers
  CHECK(contains(error_of("a;y\n0.5;0\n", R"(, "delimiter": ";", "decimal": ",")"), ":2:a: '0.5' is not a number"));
}

TEST_CASE_FIXTURE(CsvFixture, "CSV knows its shapes from `features`, or else from the first line alone") {
  for (const char* options : {"", R"(, "features": ["a"])"}) {
    const std::string message = message_of<DataError>([&] { dataset(recipe(options))->info(); });
    CHECK_MESSAGE(contains(message, path + ": cannot open: No such file"), message);
  }
  folder.write("table.csv", "a,b,y\nnot,a,\"table");
  CHECK(dataset(recipe(R"(, "features": ["a", "b"], "num_classes": 3)"))->info().fields[0].shape ==
        std::vector<int64_t>{2});
  CHECK(dataset(recipe(R"(, "features": ["a"], "num_classes": 3)"))->info().fields[1].num_classes == 3);
  CHECK(dataset(recipe())->info().fields[0].shape == std::vector<int64_t>{2});
}

TEST_CASE_FIXTURE(CsvFixture, "an error of a CSV file names file, line and column and shows the text") {
  const auto check = [&](const std::string& content, const std::string& expected, const std::string& options = "") {
    const std::string message = error_of(content, options);
    CHECK_MESSAGE(message == path + expected, message);
  };
  check("a,y\n1,0\nx,1\n", ":3:a: 'x' is not a number; write columns: {a: category}");
  check("a,y\n1,0\n\n,1\n", ":4:a: the value is missing; write columns: {a: {missing: median}}");
  check("a,y\n1,0\nnan,1\n", ":3:a: the value is missing ('nan'); write columns: {a: {missing: median}}");
  check("a,y\n1e99,0\n", ":2:a: '1e99' is too large or too small");
  check("a,y\n1 2,0\n", ":2:a: '1 2' is not a number; write columns: {a: category}");
  check("a,y\n1,\n", ":2:y: the value is missing; write broken: skip to leave such rows out");
  check("a,y\n1,0.5\n",
        ":2:y: '0.5' is not a class, which is an integer from 0; to predict numbers write task: regression");
  check("a,y\n1,cat\n", ":2:y: 'cat' is not a class, which is an integer from 0; write columns: {'y': category}");
  check("a,y\n1,-1\n", ":2:y: class -1 is not 0 or more; write columns: {'y': category}");
  check("a,y\n1,3\n", ":2:y: class 3 is not from 0 to 2", R"(, "num_classes": 3)");
  check("a,y\n1,high\n", ":2:y: 'high' is not a number", R"(, "task": "regression")");
  check("a,y\n1,0\n1,2,3\n",
        ":3: 3 columns, the first line has 2; put a text that holds the delimiter in quotation marks; or write broken: "
        "skip to leave such rows out");
  check("a,y\n1,0\n1\n", ":3: 1 columns, the first line has 2; write broken: skip to leave such rows out");
  check("b,a,y\n\"1\n\n\",1,0\n\"2", ":5: a quoted field that begins in this record is never closed",
        R"(, "features": ["a"])");
  check("a,y\n\"1\"x,0\n", ":2: column 1: text after a closing quotation mark");
  check("a,b\n1,0\n", ":1:y: there is no such column; known: a, b");
  check("alpha,y\n1,0\n", ":1:alpa: there is no such column; did you mean alpha?", R"(, "features": ["alpa"])");
  check("y,a,y\n1,0,1\n", ":1:y: two columns are called 'y'");
  check("y\n1\n", ": has no column but the label 'y'");
  check("", ": is empty");
  check("a,y\n", ": has no rows below the names of its columns");
  check(gzip("a,y\n1,0\n2,1\n3,1\n").substr(0, 25), ": the file is cut off in the middle of its gzip data");
}

TEST_CASE_FIXTURE(CsvFixture, "parameters of CSV that do not fit together are errors of the recipe") {
  const auto check = [&](const std::string& options, const std::string& expected) {
    const std::string message = message_of<RecipeError>([&] { dataset(recipe(options)); });
    CHECK_MESSAGE(contains(message, expected), message);
  };
  check(R"(, "delimiter": "::")", "delimiter: must be one character");
  check(R"(, "delimiter": "\"")", "delimiter: must be one character");
  check(R"(, "decimal": ";")", "decimal: ';' is not one of ., ,");
  check(R"(, "decimal": ",", "thousands": ",")", "thousands: is the decimal separator as well; the two must differ");
  check(R"(, "features": [])", "features: expected at least one column");
  check(R"(, "features": ["a", "y"])", "features: the label 'y' may not be a feature");
  check(R"(, "features": ["a", "a"])", "features: 'a' occurs twice");
  check(R"(, "task": "regression", "num_classes": 3)", "num_classes: is for the task classification");
  check(R"(, "task": "regresion")", "did you mean regression?");
}

TEST_CASE("the tables that come with trainrun are read whole") {
  for (const auto& [name, rows] : {std::pair{"train", 800}, std::pair{"eval", 200}}) {
    const auto data = open_dataset(R"({"type": "CSV", "path": ")" +
                                   shipped_file("recipes/data/regression_" + std::string(name) + ".csv") +
                                   R"(", "label": "y", "task": "regression"})");
    CHECK(data->size() == rows);
    CHECK(data->info().fields[0].shape == std::vector<int64_t>{10});
  }
}

}  // namespace
}  // namespace trainrun
