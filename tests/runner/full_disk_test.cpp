#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "registry/catalog.h"
#include "registry/data/tables/csv_reader.h"
#include "runner/loggers/tfevents.h"
#include "runner/loggers/told_logger.h"
#include "tests/doctest.h"
#include "tests/runner/logger_support.h"

namespace trainrun {
namespace {

using namespace test;

constexpr int64_t kEnoughSteps = 50;  // for a file that is larger than log.txt

/// While one lives, no file can grow beyond so many bytes: of what is written then, as much as fits is.
class FullDisk {
 public:
  explicit FullDisk(uintmax_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{static_cast<rlim_t>(bytes), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

uintmax_t size_of(const std::filesystem::path& path) { return std::filesystem::file_size(path); }

std::unique_ptr<Logger> logger_of(const std::string& type, const std::string& folder) {
  Catalog catalog;
  add_loggers(catalog.loggers);
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const auto chosen = Codec<Component<LoggerKind>>::read(Value::scalar(type, false, {}), reader);
  LoggerInputs inputs;
  inputs.output_dir = folder;
  return chosen->build(inputs);
}

}  // namespace

TEST_CASE("metrics.jsonl goes on once there is room again, with whole lines, and its missing lines are counted") {
  const TemporaryFolder folder;
  const Log log;
  PromptLogger told(named("jsonl"), logger_of("jsonl", folder.path()));
  for (int64_t step = 1; step <= kEnoughSteps; ++step) told.tell(at_step(step));
  {
    const FullDisk full(size_of(folder / "metrics.jsonl") + 20);
    for (int64_t step = 1; step <= 3; ++step) told.tell(at_step(kEnoughSteps + step));
    CHECK(content_of(folder / "metrics.jsonl").ends_with("}\n"));
  }
  told.tell(at_step(kEnoughSteps + 4));
  std::vector<int64_t> steps;
  std::istringstream lines(content_of(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line).at("step"));
  CHECK(steps.size() == kEnoughSteps + 1);
  CHECK(steps.back() == kEnoughSteps + 4);
  CHECK(count_of(log.text(), "jsonl cannot write; until it can") == 1);
  CHECK(count_of(log.text(), "jsonl can write again; 3 lines are missing\n") == 1);
}

TEST_CASE("metrics.csv goes on once there is room again, also with a column that could not be added before") {
  const TemporaryFolder folder;
  const Log log;
  PromptLogger told(named("csv"), logger_of("csv", folder.path()));
  for (int64_t step = 1; step <= kEnoughSteps; ++step) told.tell(at_step(step));
  StepRecord with_norm = at_step(kEnoughSteps + 1);
  with_norm.grad_norm = 3;
  {
    const FullDisk full(size_of(folder / "metrics.csv") + 10);
    told.tell(with_norm);
    told.tell(at_step(kEnoughSteps + 2));
  }
  told.tell(with_norm);
  CsvReader reader(folder / "metrics.csv", ',');
  std::vector<std::string> columns;
  std::vector<std::string> row;
  REQUIRE(reader.next(columns));
  CHECK(columns.back() == "train/grad_norm");
  int64_t rows = 0;
  for (std::vector<std::string> next; reader.next(next); ++rows) {
    row = next;
    CHECK(row.size() == columns.size());
  }
  CHECK(rows == kEnoughSteps + 1);
  CHECK(row.back() == "3");
  CHECK(count_of(log.text(), "csv can write again; 2 lines are missing\n") == 1);
}

TEST_CASE("event files go on once there is room again, with whole records") {
  const TemporaryFolder folder;
  const Log log;
  PromptLogger told(named("tensorboard"), logger_of("tensorboard", folder.path()));
  RunInfo info;
  info.recipe = std::string(1000, 'r');
  {
    const FullDisk full(500);
    told.tell(info);
    told.tell(at_step(1));
  }
  for (int64_t step = 2; step <= kEnoughSteps; ++step) told.tell(at_step(step));
  const std::filesystem::path events = std::filesystem::directory_iterator(folder / "tensorboard")->path();
  {
    const FullDisk full(size_of(events) + 20);
    told.tell(at_step(kEnoughSteps + 1));
  }
  told.tell(at_step(kEnoughSteps + 2));
  const std::string content = content_of(events);
  size_t at = 0;
  int64_t records = 0;
  for (; at + 12 <= content.size(); ++records) {  // length, its checksum, the message, its checksum
    uint64_t length = 0;
    std::memcpy(&length, content.data() + at, sizeof length);
    const std::string record = content.substr(at, 12 + length + 4);
    CHECK(framed_record(record.substr(12, length)) == record);
    at += record.size();
  }
  CHECK(at == content.size());
  CHECK(records == 2 + kEnoughSteps - 1 + 1);  // version and recipe; step 1 and one later are missing
  CHECK(count_of(log.text(), "tensorboard can write again; 1 line is missing\n") == 2);
}

TEST_CASE("log.txt goes on once there is room again, with whole lines, and says how many are missing") {
  const TemporaryFolder folder;
  start_log(folder / "log.txt", true, false);
  spdlog::info("before");
  {
    const FullDisk full(size_of(folder / "log.txt") + 10);
    spdlog::info("lost");
    spdlog::info("lost, too");
  }
  spdlog::info("after");
  start_log("", true, false);
  std::vector<std::string> ends;
  std::istringstream lines(content_of(folder / "log.txt"));
  for (std::string line; std::getline(lines, line);) ends.push_back(line.substr(line.find("[rank 0] ")));
  CHECK(ends == std::vector<std::string>{"[rank 0] before", "[rank 0] after",
                                         "[rank 0] warning: log.txt can write again; 2 lines are missing"});
}

}  // namespace trainrun
