#include <ATen/ops/arange.h>
#include <sqlite3.h>
#include <zlib.h>

#include <random>
#include <utility>

#include "registry/kinds/dataset.h"
#include "tests/doctest.h"
#include "tests/registry/data_support.h"

// Files that are cut off or changed in a bit: each is read, or an error that names it; never a crash. Run under the
// sanitizers these tests say more.

namespace trainrun {
namespace {

using test::build;

template <class T>
std::string raw_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

/// A .npy file of `rows` rows of three float32.
std::string npy(int64_t rows) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 3), }";
  constexpr size_t kAlignment = 64, kPreamble = 10;
  header.resize((kPreamble + header.size() + kAlignment) / kAlignment * kAlignment - kPreamble, ' ');
  header.back() = '\n';
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + raw_bytes(static_cast<uint16_t>(header.size())) + header;
  for (int64_t i = 0; i < rows * 3; ++i) file += raw_bytes(static_cast<float>(i));
  return file;
}

/// A zip archive, its members stored or deflated.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members, bool deflate) {
  std::string file, directory;
  for (const auto& [name, content] : members) {
    const std::string packed = deflate ? test::deflated(content) : content;
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::string common = raw_bytes<uint16_t>(20) + raw_bytes<uint16_t>(0) + raw_bytes<uint16_t>(deflate ? 8 : 0) +
                               raw_bytes<uint32_t>(0) + raw_bytes(static_cast<uint32_t>(crc)) +
                               raw_bytes(static_cast<uint32_t>(packed.size())) +
                               raw_bytes(static_cast<uint32_t>(content.size())) +
                               raw_bytes(static_cast<uint16_t>(name.size())) + raw_bytes<uint16_t>(0);
    directory += "PK\x01\x02" + raw_bytes<uint16_t>(20) + common + raw_bytes<uint16_t>(0) + raw_bytes<uint16_t>(0) +
                 raw_bytes<uint16_t>(0) + raw_bytes<uint32_t>(0) + raw_bytes(static_cast<uint32_t>(file.size())) + name;
    file += "PK\x03\x04" + common + name + packed;
  }
  const auto count = static_cast<uint16_t>(members.size());
  return file + directory + "PK\x05\x06" + raw_bytes<uint32_t>(0) + raw_bytes(count) + raw_bytes(count) +
         raw_bytes(static_cast<uint32_t>(directory.size())) + raw_bytes(static_cast<uint32_t>(file.size())) +
         raw_bytes<uint16_t>(0);
}

std::string sqlite_database(const TemporaryFolder& folder) {
  const std::string path = folder / "whole.db";
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  std::string sql = "CREATE TABLE t (a, b, y);";
  for (int i = 0; i < 40; ++i) sql += "INSERT INTO t VALUES (" + std::to_string(i) + ", 'text', 1);";
  REQUIRE(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
  return content_of(path);
}

/// Reads `content`, damaged in `rounds` ways, as the data set that `spec` says ("PATH" stands for the file's); returns
/// how often it was an error.
int count_errors(const TemporaryFolder& folder, const std::string& content, const std::string& spec, int rounds) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same damages each time
  int errors = 0;
  for (int round = 0; round <= rounds; ++round) {
    std::string damaged = content;
    const size_t place = random() % content.size();
    if (round % 3 == 1) damaged.resize(place);
    if (round % 3 == 2) damaged[place] = static_cast<char>(damaged[place] ^ (1 << (random() % 8)));
    const std::string path = folder.write("data", round == 0 ? content : damaged);
    std::string text = spec;
    text.replace(text.find("PATH"), 4, path);
    try {
      const auto data = build<DatasetKind>(text);
      data->open();
      data->learn(at::arange(data->size(), at::kLong));
      if (data->size() > 0) data->get(at::arange(data->size(), at::kLong));
      CHECK(!data->info().fields.empty());
    } catch (const DataError& error) {
      CAPTURE(error.what());
      CHECK((std::string(error.what()).find(path) != std::string::npos));
      ++errors;
    }
    if (round == 0) CHECK(errors == 0);
  }
  return errors;
}

constexpr int kRounds = 400;

}  // namespace

TEST_CASE("damaged .npy and .npz files are errors that name them") {
  const TemporaryFolder folder;
  const std::string fields = R"("type": "TensorFile", "target": "y")";
  CHECK(count_errors(folder, npy(20), "{" + fields + R"(, "fields": {"y": "PATH"}})", kRounds) > kRounds / 4);
  for (const bool deflate : {false, true}) {
    const std::string content = zip({{"x.npy", npy(20)}, {"y.npy", npy(20)}}, deflate);
    CHECK(count_errors(folder, content, "{" + fields + R"(, "path": "PATH"})", kRounds) > kRounds / 3);
  }
}

TEST_CASE("damaged tables are errors that name them") {
  const TemporaryFolder folder;
  std::string csv = "a,b,y\n";
  std::string jsonl;
  for (int i = 0; i < 20; ++i) {
    const std::string a = std::to_string(i * 0.5);
    csv += a + ",\"some, text\"," + std::to_string(i % 3) + "\n";
    jsonl += R"({"a": )" + a + R"(, "b": "some, text", "y": )" + std::to_string(i % 3) + "}\n";
  }
  const std::string columns = R"(, "label": "y", "columns": {"b": "category"}})";
  CHECK(count_errors(folder, csv, R"({"type": "CSV", "path": "PATH")" + columns, kRounds) > kRounds / 8);
  CHECK(count_errors(folder, jsonl, R"({"type": "JSONL", "path": "PATH")" + columns, kRounds) > kRounds / 8);
  CHECK(count_errors(folder, test::gzip(csv), R"({"type": "CSV", "path": "PATH")" + columns, kRounds) > kRounds / 4);
  const std::string table = R"(, "table": "t")";
  CHECK(count_errors(folder, sqlite_database(folder), R"({"type": "SQLite", "path": "PATH")" + table + columns,
                     kRounds) > kRounds / 16);
}

}  // namespace trainrun
